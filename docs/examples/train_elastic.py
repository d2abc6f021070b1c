# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Trains a small transformer with pathways_elastic: snapshots in memory instead of checkpoints.

    pathways-slurm run -- python docs/examples/train_elastic.py --steps 100

When a slice is lost, training goes on with the others from the last snapshot; when it is back, it
is taken in at the next look. docs/elastic.md explains the loop. Needs a Pathways service.
"""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

# Read once, when JAX is imported. Otherwise XLA's client warns of each array of a lost slice.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import jax
import numpy as np
import numpy.typing as npt
import pathwaysutils
from jax.sharding import Mesh

import sharded_training as sharded
from char_transformer import ModelConfig, load_text
from pathways_elastic.errors import ElasticError, NoSnapshotError
from pathways_elastic.manager import ElasticUtils, Event, Manager

TEXT_BYTES = 2_000_000


def elastic_handler(
    elastic_utils: ElasticUtils, trainer: sharded.Trainer
) -> tuple[sharded.State, int, Mesh]:
    """What the loop goes on with: the state, the last step that is in it, and the mesh."""
    mesh = sharded.build_mesh(elastic_utils.good_slice_to_devices)
    try:
        step, state = elastic_utils.get_next_snapshot()
    except NoSnapshotError:
        # Lost before the first step was over.
        step, state = -1, trainer.init(mesh)
    return state, step, mesh


def train(
    manager: Manager, trainer: sharded.Trainer, text: npt.NDArray[np.uint8], steps: int
) -> None:
    """Takes all steps, and prints the loss of each."""
    mesh = sharded.build_mesh(manager.good_slice_to_devices)
    state, step = trainer.init(mesh), 0
    handling: Mapping[str, Any] = {
        "elastic_handler": elastic_handler,
        "handler_kwargs": {"trainer": trainer},
    }
    while step < steps:
        try:
            state, loss = trainer.step(state, text, step, mesh)
            manager.maybe_snapshot(step=step, snapshot=state)
            # Reading the loss waits for the step, and so finds out if a slice is gone.
            where = ",".join(map(str, sorted(manager.good_slice_indices)))
            print(f"step {step:5d}  loss {float(loss):.4f}  slices {where}", flush=True)
            returned = manager.maybe_reshard_up(step=step, snapshot=state, **handling)
            if returned:
                state, step, mesh = returned
        except jax.errors.JaxRuntimeError as error:
            state, step, mesh = manager.maybe_reshard_down(error=error, **handling)
        step += 1


def say(event: Event) -> None:
    """Tells the user what the manager does."""
    print(f"{event.kind}: {event.reason}", flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0 done, 1 failed, 2 bad options."""
    parser = argparse.ArgumentParser(
        description="Trains a small transformer on the sources of Python's standard library.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--steps", type=int, default=100, help="steps to take in all")
    parser.add_argument("--snapshot-period", type=int, default=10, help="steps between snapshots")
    parser.add_argument("--min-slices", type=int, help="wait for so many; else as cluster.env says")
    options = parser.parse_args(argv)
    if options.steps < 1:
        parser.error(f"--steps must be >= 1, got {options.steps}")

    pathwaysutils.initialize()
    trainer = sharded.Trainer(sharded.Run(ModelConfig(), global_batch=24, seed=0))
    try:
        with Manager(
            devices=jax.devices(),
            snapshot_period=options.snapshot_period,
            snapshot_buffer_size=1,
            reshard_check_period=5,
            max_elastic_down_event_count=10,
            max_reshard_retry_count=3,
            min_slices=options.min_slices,
            on_event=say,
        ) as manager:
            train(manager, trainer, load_text(TEXT_BYTES), options.steps)
    except (ValueError, ElasticError, jax.errors.JaxRuntimeError) as error:
        print(f"failed: {str(error).partition(chr(10))[0]}", flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
