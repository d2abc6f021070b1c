# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The transformer of docs/examples in the loop of docs/elastic.md, and moments to interfere at.

Imports JAX: only after :func:`elastic_service.prepare_jax`.
"""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import jax
import numpy as np
import numpy.typing as npt

from pathways_elastic.errors import NoSnapshotError
from pathways_elastic.manager import ElasticUtils, Manager

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "docs" / "examples"))

import char_transformer
import sharded_training

type Parameters = dict[str, npt.NDArray[np.float32]]


class Interference(Protocol):
    """Told where the program is."""

    def before_step(self, step: int) -> None:
        """Step ``step`` is about to be dispatched."""

    def after_snapshot(self) -> None:
        """``maybe_snapshot`` has returned; copies may be on their way."""

    def after_step(self, step: int, slices: Sequence[int]) -> None:
        """Step ``step`` is done on these slices."""

    def in_handler(self, utils: ElasticUtils, *, growing: bool) -> None:
        """The state is restored, and the handler goes on."""


def small_trainer() -> sharded_training.Trainer:
    """Of a model as small as compiles and computes fast, with all that a step can depend on."""
    small = char_transformer.ModelConfig(layers=1, width=32, seq_len=32, dropout=0.1)
    return sharded_training.Trainer(sharded_training.Run(small, global_batch=24, seed=0))


def example_trainer() -> sharded_training.Trainer:
    """Of the model of the example program."""
    size = char_transformer.ModelConfig()
    return sharded_training.Trainer(sharded_training.Run(size, global_batch=24, seed=0))


@dataclass
class Program:
    """A run of ``steps`` steps.

    Attributes:
        recoveries: Seconds from each loss's error to the next step that was completed.
        lost: Steps that each loss has cost.
    """

    steps: int
    trainer: sharded_training.Trainer = field(default_factory=small_trainer)
    text: npt.NDArray[np.uint8] = field(
        default_factory=lambda: char_transformer.load_text(2_000_000)
    )
    recoveries: list[float] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)

    def _handler(self, utils: ElasticUtils, chaos: Interference, growing: bool) -> Any:
        mesh = sharded_training.build_mesh(utils.good_slice_to_devices)
        try:
            step, state = utils.get_next_snapshot()
        except NoSnapshotError:
            step, state = -1, self.trainer.init(mesh)
        chaos.in_handler(utils, growing=growing)
        return state, step, mesh

    def train(self, manager: Manager, chaos: Interference) -> Parameters:
        """The parameters after all steps."""
        mesh = sharded_training.build_mesh(manager.good_slice_to_devices)
        state, step = self.trainer.init(mesh), 0
        failed_at: float | None = None
        while step < self.steps:
            chaos.before_step(step)
            try:
                state, loss = self.trainer.step(state, self.text, step, mesh)
                manager.maybe_snapshot(step=step, snapshot=state)
                chaos.after_snapshot()
                float(loss)
                chaos.after_step(step, sorted(manager.good_slice_indices))
                if failed_at is not None:
                    self.recoveries.append(time.monotonic() - failed_at)
                    failed_at = None
                if step == self.steps - 1:
                    # In here: as long as the state is on slices, they can be lost.
                    return {name: np.asarray(value) for name, value in state["params"].items()}
                if returned := manager.maybe_reshard_up(
                    step=step,
                    snapshot=state,
                    elastic_handler=self._handler,
                    handler_kwargs={"chaos": chaos, "growing": True},
                ):
                    state, step, mesh = returned
            except jax.errors.JaxRuntimeError as error:
                failed_at = time.monotonic() if failed_at is None else failed_at
                reached = step
                state, step, mesh = manager.maybe_reshard_down(
                    error=error,
                    elastic_handler=self._handler,
                    handler_kwargs={"chaos": chaos, "growing": False},
                )
                self.lost.append(reached - step)
            step += 1
        raise ValueError(f"steps must be >= 1, got {self.steps}")


def largest_difference(one: Parameters, other: Parameters) -> float:
    """Of any two parameters."""
    return max(float(np.max(np.abs(one[name] - other[name]))) for name in one)
