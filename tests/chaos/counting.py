# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The least that is a training: counts on every device of every slice, and checks the sum.

    pathways-slurm run -- python tests/chaos/counting.py DIRECTORY

A step adds 1 on each device and sums over all of them, which must be the count times the devices.
When a slice is lost, it goes on from its last checkpoint on those that are left; when one is back,
on that one too. What happens goes to DIRECTORY/metrics.jsonl. Anything else that fails ends it: a
user starts it again.
"""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pathwaysutils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

_STEP_S = 0.25
_CHECKPOINT_EVERY = 5
_LOOK_EVERY = 4
_POLL_S = 0.5

type Slices = Mapping[int, Sequence[jax.Device]]


class Journal:
    """The count that survives, and what is told."""

    def __init__(self, directory: Path) -> None:
        self._checkpoint = directory / "count.json"
        self._metrics = directory / "metrics.jsonl"

    def tell(self, event: str, **fields: object) -> None:
        with self._metrics.open("a") as file:
            file.write(json.dumps({"event": event, **fields, "time": time.time()}) + "\n")

    def save(self, count: int) -> None:
        """In one step: a program that is killed leaves the last count or this one."""
        new = self._checkpoint.with_suffix(".new")
        new.write_text(json.dumps(count))
        new.rename(self._checkpoint)

    def restore(self) -> int:
        return int(json.loads(self._checkpoint.read_text())) if self._checkpoint.exists() else 0


def lost(error: Exception) -> bool:
    """Whether an error says that a slice has gone."""
    return "DATA_LOSS" in str(error)


def present(slices: Slices) -> set[int]:
    """Those that hold data."""
    found = set()
    for index, devices in slices.items():
        try:
            jax.block_until_ready(jax.device_put(np.zeros(1), devices[0]))
            found.add(index)
        except jax.errors.JaxRuntimeError as error:
            if not lost(error):
                raise
    return found


@jax.jit
def _step(counts: jax.Array) -> tuple[jax.Array, jax.Array]:
    return counts + 1, jnp.sum(counts + 1)


def count(slices: Slices, chosen: set[int], journal: Journal) -> None:
    """Counts on the chosen slices until another one is there. Raises JaxRuntimeError."""
    devices = np.array([device for index in sorted(chosen) for device in slices[index]])
    sharding = NamedSharding(Mesh(devices, ("all",)), PartitionSpec("all"))
    step = journal.restore()
    journal.tell("restore", step=step, slices=sorted(chosen))
    counts = jax.device_put(np.full(devices.size, step, np.int32), sharding)
    while True:
        counts, total = _step(counts)
        step += 1
        if int(total) != step * devices.size:
            journal.tell("wrong", step=step, found=int(total), wanted=step * devices.size)
        journal.tell("step", step=step, slices=sorted(chosen))
        if step % _CHECKPOINT_EVERY == 0:
            journal.save(step)
        if step % _LOOK_EVERY == 0 and present(slices) - chosen:
            journal.save(step)
            return
        time.sleep(_STEP_S)


def main(directory: Path) -> int:
    """Counts until something else than the loss of slices fails: returns 1."""
    pathwaysutils.initialize()
    journal = Journal(directory)
    slices: dict[int, list[jax.Device]] = {}
    try:
        for device in jax.devices():
            slices.setdefault(device.slice_index, []).append(device)
        while True:
            if not (chosen := present(slices)):
                time.sleep(_POLL_S)
                continue
            try:
                count(slices, chosen, journal)
            except jax.errors.JaxRuntimeError as error:
                if not lost(error):
                    raise
                journal.tell("error", message=str(error).partition("\n")[0])
    except (jax.errors.JaxRuntimeError, RuntimeError) as error:
        print(str(error).partition("\n")[0], flush=True)
        return 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
