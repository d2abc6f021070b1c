# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What the client programs share."""

import sys
from collections.abc import Callable

import jax
import numpy as np
import pathwaysutils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

pathwaysutils.initialize()


def mesh_of(*slices: int) -> Mesh:
    """All devices of these slices: axes ``slice`` and ``chip``."""
    devices = [
        [device for device in jax.devices() if device.slice_index == index] for index in slices
    ]
    return Mesh(np.array(devices), ("slice", "chip"))


def on(mesh: Mesh, *parts: str | tuple[str, ...] | None) -> NamedSharding:
    """A sharding over ``mesh``."""
    return NamedSharding(mesh, PartitionSpec(*parts))


def tell(line: str) -> None:
    """Says a line to the test."""
    print(line, flush=True)


def wait_for(line: str) -> None:
    """Waits for a line of the test."""
    heard = sys.stdin.readline().rstrip("\n")
    assert heard == line, f"expected {line!r}, heard {heard!r}"


def error_of(action: Callable[[], object]) -> str:
    """The text of the runtime error that ``action`` raises."""
    try:
        action()
    except (jax.errors.JaxRuntimeError, RuntimeError) as error:
        return str(error)
    raise AssertionError("no error")
