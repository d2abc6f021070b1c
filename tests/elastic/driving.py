# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What tests do to a manager and its slices, as a program and the world would."""

import functools
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from tests.elastic import toy
from tests.elastic.conftest import PATIENCE_S, wait_until
from tests.elastic.toy import State

from elastic_service import Service
from pathways_elastic.detection import Liveness, active, slices_of
from pathways_elastic.manager import Manager

type MakeManager = Callable[..., Manager]


def down(manager: Manager, error: Exception, handler: Callable[..., Any] = toy.handler) -> Any:
    return manager.maybe_reshard_down(error=error, elastic_handler=handler)


def lose(service: Service, manager: Manager, *indices: int) -> jax.errors.JaxRuntimeError:
    """Kills slices; returns the error that a program sees."""
    assert indices
    for index in indices:
        data = jax.device_put(np.float32(1), manager.good_slice_to_devices[index][0])
        service.kill(index)
        # Anew each time: that an array was ready once is not asked again.
        error = until_lost(functools.partial(read_anew, data))
    return error


def read_anew(data: jax.Array) -> None:
    jax.block_until_ready(jax.device_put(data, data.sharding, may_alias=False))


def answering() -> frozenset[int]:
    """The slices that can be used now."""
    slices = slices_of(jax.devices())
    return active(slices, Liveness(slices, 10.0))


def until_lost(action: Callable[[], object]) -> jax.errors.JaxRuntimeError:
    """Does something again and again until the loss of a slice shows; returns the error."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            action()
        except jax.errors.JaxRuntimeError as error:
            return error
    raise AssertionError(f"no loss seen within {PATIENCE_S} s")


def snapshot_of(manager: Manager, step: int, state: State | None = None) -> State:
    """Takes a snapshot and waits until it is whole."""
    if state is None:
        state = toy.new_state(toy.mesh_of(manager.good_slice_to_devices))
    manager.maybe_snapshot(step=step, snapshot=state)
    wait_until(lambda: step in [info.step for info in manager.snapshots], f"snapshot {step}")
    return state
