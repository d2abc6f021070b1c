# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Counts on all slices of a service, and leaves one that is about to go if it is told to look.

Usage: pathways-slurm run -- python -m tests.e2e.counting watch|ignore

Every device adds 1 in every step. It says ``step N slices I,J`` after each, ``left I`` once what
was on slice I is elsewhere and the service knows it, and ``error TEXT`` before it ends by one. It
ends with its standard input.
"""

import os
import sys
import threading
from collections.abc import Iterable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pathwaysutils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from pathways_slurm import notices
from pathways_slurm.notices import Going

HOME = Path(os.environ["PATHWAYS_CLUSTER_ENV"]).parent
STEP_S = 0.05

add = jax.jit(lambda counts: counts + 1)


def replicated_over(slices: Iterable[int]) -> NamedSharding:
    """On every device of these slices."""
    devices = [device for device in jax.devices() if device.slice_index in set(slices)]
    return NamedSharding(Mesh(np.array(devices), ("device",)), PartitionSpec())


def slices_of(counts: jax.Array) -> list[int]:
    """Those that an array is on."""
    where = counts.sharding.device_set
    return sorted({device.slice_index for device in jax.devices() if device in where})


def leave(counts: jax.Array, going: Going) -> jax.Array:
    """Moves what there is to the other slices, and tells the service."""
    rest = [index for index in slices_of(counts) if index != going.slice]
    moved: jax.Array = jax.device_put(counts, replicated_over(rest))
    moved.block_until_ready()
    notices.acknowledge(HOME / notices.DIRECTORY, going.slice, going.incarnation)
    print(f"left {going.slice}", flush=True)
    return moved


def look(counts: jax.Array) -> jax.Array:
    """Leaves slices that are about to go, and takes those that are back."""
    found = notices.read(HOME / notices.FILE)
    for going in found.going:
        if going.slice in slices_of(counts):
            counts = leave(counts, going)
    back = {entry.slice for entry in found.back} - {going.slice for going in found.going}
    if back - set(slices_of(counts)):
        counts = jax.device_put(counts, replicated_over({*slices_of(counts), *back}))
    return counts


def count(told_to_end: threading.Event, *, watches: bool) -> None:
    """Takes steps until it is told to end."""
    every = {device.slice_index for device in jax.devices()}
    counts = jax.device_put(jnp.zeros(8, jnp.int32), replicated_over(every))
    while not told_to_end.wait(STEP_S):
        if watches:
            counts = look(counts)
        counts = add(counts)
        where = ",".join(map(str, slices_of(counts)))
        print(f"step {int(counts.sum()) // 8} slices {where}", flush=True)


def main() -> None:
    """Runs until standard input ends."""
    pathwaysutils.initialize()
    told_to_end = threading.Event()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        told_to_end.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    try:
        count(told_to_end, watches=sys.argv[1] == "watch")
    except (jax.errors.JaxRuntimeError, RuntimeError) as error:
        print(f"error {str(error).splitlines()[0]}", flush=True)


if __name__ == "__main__":
    main()
