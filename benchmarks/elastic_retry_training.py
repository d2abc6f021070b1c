# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The training of elastic_training with pathwaysutils' elastic_retry and Orbax checkpoints instead.

A loss ends the attempt; the next one starts from the last checkpoint on the slices that are left. A
slice that is back ends it too, at a step that is saved. Imports JAX: only after
:func:`elastic_service.prepare_jax`.
"""

import gc
from collections.abc import Callable, Sequence
from pathlib import Path

from pathwaysutils.elastic.manager import Manager, ScaleUpSignalError

# First: it says where the example's modules are.
from elastic_training import Program

import sharded_training  # isort: skip

type Completed = Callable[[int, Sequence[int]], None]


def train(program: Program, directory: Path, period: int, completed: Completed) -> None:
    """Trains until all steps are taken, or ``completed`` raises something.

    Args:
        program: What is trained.
        directory: For checkpoints; an absolute path.
        period: Steps between checkpoints.
        completed: Told of each step that is done, and of its slices.
    """
    manager = Manager()

    def attempt() -> None:
        slices = {index: manager.slice_to_devices[index] for index in manager.active_slice_indices}
        mesh, indices = sharded_training.build_mesh(slices), sorted(slices)
        with sharded_training.Checkpoints(directory) as checkpoints:
            state, step, _ = checkpoints.restore_or_init(program.trainer, mesh)
            while step < program.steps:
                state, loss = program.trainer.step(state, program.text, step, mesh)
                step += 1
                # Waits for the step, and so finds out if a slice is gone.
                float(loss)
                completed(step, indices)
                if step % period == 0 or step == program.steps:
                    checkpoints.save(step, state)
                if step < program.steps and manager.available_inactive_slices:
                    checkpoints.save(step, state)
                    checkpoints.wait()
                    raise ScaleUpSignalError
            checkpoints.wait()

    # The traceback of a failed attempt holds its frames, and those its arrays, until it is
    # collected; elastic_retry has dropped the error by the time it calls this.
    manager.elastic_retry(
        minimum_slice_count=1,
        poll_interval=0.1,
        pre_callback=gc.collect,
        retry_policy=lambda *_: True,
    )(attempt)()
