# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Trains a small transformer on every slice of a Pathways service, and keeps on when slices go.

    pathways-slurm run -- python docs/examples/train_transformer.py
    python docs/examples/train_transformer.py --steps 20        # plain JAX, no service

The batch is divided over all devices; parameters and optimizer state are sharded over the devices
of a slice and replicated over slices. When a slice is lost, so is every array that touches it: JAX
raises, and the next attempt starts from the last checkpoint on the slices that are left. When a
slice comes back, the step boundary after it is seen saves a checkpoint and starts again on all.
"""

import argparse
import contextlib
import gc
import json
import logging
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

# Read once, when JAX is imported. Otherwise XLA's client warns of each array of a lost slice.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import jax
import numpy as np
import numpy.typing as npt
import pathwaysutils
from pathwaysutils.elastic.manager import ElasticRuntimeError, Manager, ScaleUpSignalError

import sharded_training as sharded
from char_transformer import ModelConfig, load_text

TEXT_BYTES = 2_000_000
MAX_FAILURES_IN_PLACE = 5
"""Attempts in a row that may fail without one new step: a bug must not be retried for ever."""


@dataclass
class Reporter:
    """Tells a human on stdout, and a program in JSON lines if ``metrics`` is given."""

    metrics: TextIO | None = None
    log_period: int = 10
    losses: dict[int, float] = field(default_factory=dict)
    _last: float = field(default_factory=time.monotonic)

    def event(self, name: str, **fields: Any) -> None:
        if self.metrics:
            self.metrics.write(json.dumps({"event": name, **fields, "time": time.time()}) + "\n")
            self.metrics.flush()

    def say(self, text: str) -> None:
        print(text, flush=True)

    def step(self, step: int, loss: float, slices: Sequence[int]) -> None:
        now = time.monotonic()
        took, self._last = now - self._last, now
        self.losses[step] = loss
        self.event("step", step=step, loss=loss, slices=list(slices))
        if step % self.log_period == 0 or len(self.losses) == 1:
            where = ",".join(map(str, slices))
            self.say(f"step {step:5d}  loss {loss:.4f}  slices {where}  {took:.2f} s/step")

    @property
    def furthest(self) -> int:
        return max(self.losses, default=0)


@dataclass(frozen=True)
class Loop:
    """The training loop's arguments; see the command line's help for those not said here."""

    trainer: sharded.Trainer
    text: npt.NDArray[np.uint8]
    reporter: Reporter
    steps: int
    checkpoint_dir: Path
    checkpoint_period: int
    min_step_time: float = 0.0
    shield: sharded.Shield = contextlib.nullcontext

    def attempt(self, slices: sharded.Slices, returned: Callable[[], Set[int]]) -> None:
        """Trains on ``slices`` until all steps are taken.

        Args:
            slices: The slices to use, all of the same size.
            returned: Says which other slices could be used by now.

        Raises:
            ScaleUpSignalError: ``returned`` named a slice; a checkpoint of this step is saved.
            jax.errors.JaxRuntimeError: The runtime failed; DATA_LOSS if a slice was lost.
        """
        mesh, indices, report = sharded.build_mesh(slices), sorted(slices), self.reporter
        report.event("slices", active=indices)
        report.say(f"training on slices {indices}, {mesh.shape['fsdp']} devices each")
        try:
            with sharded.Checkpoints(self.checkpoint_dir, self.shield) as checkpoints:
                state, step, restored = checkpoints.restore_or_init(self.trainer, mesh)
                if restored:
                    report.event("restore", step=step, slices=indices)
                    report.say(f"restored the checkpoint of step {step}")
                while step < self.steps:
                    due = time.monotonic() + self.min_step_time
                    state, loss = self.trainer.step(state, self.text, step, mesh)
                    step += 1
                    # Reading the loss waits for the step, and so finds out if a slice is gone.
                    report.step(step, float(loss), indices)
                    if step % self.checkpoint_period == 0 or step == self.steps:
                        checkpoints.save(step, state)
                    if step < self.steps and (more := returned()):
                        checkpoints.save(step, state)
                        checkpoints.wait()
                        report.say(f"slices {sorted(more)} are back")
                        raise ScaleUpSignalError
                    time.sleep(max(0.0, due - time.monotonic()))
                checkpoints.wait()
        except jax.errors.JaxRuntimeError as error:
            report.event("error", message=first_line(error))
            report.say(f"after step {report.furthest}: {first_line(error)}")
            raise


@dataclass
class RetryBudget:
    """Allows retries as long as every few of them make progress."""

    progress: Callable[[], int]
    limit: int = MAX_FAILURES_IN_PLACE
    _failures: int = 0
    _reached: int = -1

    def __call__(self, attempt: int, error: Exception) -> bool:
        del attempt, error
        reached = self.progress()
        self._failures = 1 if reached > self._reached else self._failures + 1
        self._reached = reached
        return self._failures < self.limit


def first_line(error: Exception) -> str:
    """What an error says; the runtime's own stack traces, which may follow, say nothing here."""
    return str(error).partition("\n")[0]


def train(loop: Loop, min_slices: int, poll_interval: float) -> None:
    """Trains on whatever slices there are: elastically through Pathways, else on all devices."""
    if not pathwaysutils.is_pathways_backend_used():
        loop.attempt(sharded.group_by_slice(jax.devices()), frozenset)
        return
    manager = Manager()
    # The traceback of a failed attempt holds its frames, and those its arrays, until it is
    # collected; elastic_retry has dropped the error by the time it calls this.
    retry = manager.elastic_retry(
        minimum_slice_count=min_slices,
        poll_interval=poll_interval,
        pre_callback=gc.collect,
        retry_policy=RetryBudget(lambda: loop.reporter.furthest),
    )

    def attempt() -> None:
        active = {index: manager.slice_to_devices[index] for index in manager.active_slice_indices}
        loop.attempt(active, lambda: manager.available_inactive_slices)

    retry(attempt)()


def parse_options(argv: Sequence[str] | None, env: Mapping[str, str]) -> argparse.Namespace:
    """Reads the command line; exits 2 with every fault of it."""
    parser = argparse.ArgumentParser(
        description="Trains a small transformer on the sources of Python's standard library.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    size = ModelConfig()
    add = parser.add_argument
    add("--steps", type=int, default=200, help="steps to take in all")
    add("--global-batch", type=int, default=24, help="examples of a step, over all slices")
    add("--seq-len", type=int, default=size.seq_len, help="bytes of context")
    add("--layers", type=int, default=size.layers, help="transformer blocks")
    add("--width", type=int, default=size.width, help="of the residual stream; a multiple of 4")
    add("--dropout", type=float, default=size.dropout, help="probability, 0 <= p < 1")
    add("--seed", type=int, default=0, help="of parameters, batches and dropout; >= 0")
    add("--checkpoint-dir", type=Path, help="resumed from if it holds any; else a temporary one")
    add("--checkpoint-period", type=int, default=10, help="steps between checkpoints")
    add(
        "--min-slices",
        default=env.get("PATHWAYS_MIN_SLICES", "1"),
        help="wait for so many; PATHWAYS_MIN_SLICES if it is set",
    )
    add("--poll-interval", type=float, default=1.0, help="seconds between looks for slices")
    add("--min-step-time", type=float, default=0.0, help="seconds that a step takes at least")
    add("--log-period", type=int, default=10, help="steps between lines of output")
    add("--metrics", type=Path, help="append what happens to this file, in JSON lines")
    options = parser.parse_args(argv)

    faults = []
    try:
        options.min_slices = int(options.min_slices)
    except ValueError:
        faults.append(f"--min-slices must be an integer >= 1, got {options.min_slices!r}")
        options.min_slices = 1
    positive = "steps global_batch seq_len layers width checkpoint_period min_slices log_period"
    for name in positive.split():
        if (value := getattr(options, name)) < 1:
            faults.append(f"--{name.replace('_', '-')} must be >= 1, got {value}")
    if options.width % size.heads:
        faults.append(f"--width must be a multiple of {size.heads}, got {options.width}")
    if not 0 <= options.dropout < 1:
        faults.append(f"--dropout must be >= 0 and < 1, got {options.dropout}")
    if options.seed < 0:
        faults.append(f"--seed must be >= 0, got {options.seed}")
    if not options.min_step_time >= 0:
        faults.append(f"--min-step-time must be >= 0, got {options.min_step_time}")
    if not options.poll_interval > 0:
        faults.append(f"--poll-interval must be > 0, got {options.poll_interval}")
    if faults:
        parser.error("\n  ".join(["", *faults]))
    return options


class Stopped(KeyboardInterrupt):
    """A signal asked for the end."""

    def __init__(self, signum: int) -> None:
        super().__init__(signal.Signals(signum).name)
        self.signum = signum


class StopSignals:
    """Turns SIGINT and SIGTERM into :class:`Stopped`, at once or as soon as no shield is up."""

    def __init__(self) -> None:
        self._received: int | None = None
        self._shields = 0
        for signum in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signum, self._receive)

    def _receive(self, signum: int, _frame: FrameType | None) -> None:
        self._received = signum
        # A second signal ends the process at once, should the end take too long.
        signal.signal(signum, signal.SIG_DFL)
        self._raise_if_due()

    def _raise_if_due(self) -> None:
        if self._received is not None and not self._shields:
            raise Stopped(self._received)

    @contextlib.contextmanager
    def shield(self) -> Iterator[None]:
        """Within it, nothing is raised; at its end, what came meanwhile is."""
        self._shields += 1
        try:
            yield
        finally:
            self._shields -= 1
        self._raise_if_due()


def _refuse(fault: str) -> int:
    print(f"train_transformer.py: error: {fault}", file=sys.stderr)
    return 2


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0 done, 1 failed, 2 bad options, 128 + N ended by signal N."""
    options = parse_options(argv, os.environ)
    # The program reports a lost slice in one line of its own; these log its traceback as well.
    logging.getLogger("pathwaysutils").setLevel(logging.CRITICAL)
    logging.getLogger("absl").setLevel(logging.ERROR)
    stop = StopSignals()
    run = sharded.Run(
        ModelConfig(
            layers=options.layers,
            width=options.width,
            seq_len=options.seq_len,
            dropout=options.dropout,
        ),
        options.global_batch,
        options.seed,
    )
    reporter = Reporter(log_period=options.log_period)
    with contextlib.ExitStack() as stack:
        directory = options.checkpoint_dir
        if directory is None:
            directory = Path(
                stack.enter_context(tempfile.TemporaryDirectory(prefix="checkpoints-"))
            )
        if differs := sharded.check_same_run(directory, run):
            return _refuse(
                f"{directory} holds checkpoints of another run ({differs}): use another "
                "--checkpoint-dir or the same options"
            )
        if options.metrics:
            reporter.metrics = stack.enter_context(options.metrics.open("a"))
        try:
            pathwaysutils.initialize()
            slices = sharded.group_by_slice(jax.devices())
            if options.min_slices > len(slices):
                return _refuse(
                    f"--min-slices is {options.min_slices}, but there are only {len(slices)} slices"
                )
            text = load_text(TEXT_BYTES)
            loop = Loop(
                trainer=sharded.Trainer(run),
                text=text,
                reporter=reporter,
                steps=options.steps,
                checkpoint_dir=directory.absolute(),
                checkpoint_period=options.checkpoint_period,
                min_step_time=options.min_step_time,
                shield=stop.shield,
            )
            train(loop, options.min_slices, options.poll_interval)
        except Stopped as stopped:
            reporter.say(f"\nstopped by {stopped} after step {reporter.furthest}")
            return 128 + stopped.signum
        except (ElasticRuntimeError, jax.errors.JaxRuntimeError) as error:
            reporter.say(f"failed after step {reporter.furthest}: {first_line(error)}")
            return 1
    if losses := reporter.losses:
        first, last = min(losses), max(losses)
        reporter.say(f"loss {losses[first]:.4f} at step {first}, {losses[last]:.4f} at step {last}")
    else:
        reporter.say(f"the checkpoint in {directory} has all {options.steps} steps already")
    return 0


if __name__ == "__main__":
    sys.exit(main())
