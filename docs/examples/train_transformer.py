# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Trains a small transformer on every slice of a Pathways service, and keeps on when slices go.

    pathways-slurm run -- python docs/examples/train_transformer.py
    python docs/examples/train_transformer.py --steps 20        # plain JAX, no service

The batch is divided over all devices; parameters and optimizer state are sharded over the devices
of a slice and replicated over slices. When a slice is lost, so is every array that touches it: JAX
raises, and training goes on from the last snapshot on the slices that are left. A slice that is
back is taken in between two steps, and one that is about to go is left, without a step taken twice
(docs/elastic.md). Checkpoints are for the loss of this process, or of the service.
"""

import argparse
import contextlib
import json
import logging
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
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
from jax.sharding import Mesh

import pathways_elastic
import sharded_training as sharded
from char_transformer import ModelConfig, load_text
from pathways_elastic.errors import ElasticError, NoSnapshotError
from pathways_elastic.manager import ElasticUtils, Event, Manager

TEXT_BYTES = 2_000_000
MAX_LOSSES = 100
"""So many losses are survived: a bug that looks like one must not be retried for ever."""


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


class Steady:
    """Stands for the manager where there are no slices that could go: plain JAX."""

    def __init__(self, devices: Sequence[jax.Device]) -> None:
        self.good_slice_to_devices: sharded.Slices = sharded.group_by_slice(devices)

    def maybe_snapshot(self, *, step: int, snapshot: sharded.State) -> None:
        """Nothing is kept."""

    def maybe_reshard_up(self, **_: Any) -> None:
        """There is nothing to take in."""

    def maybe_reshard_down(self, *, error: Exception, **_: Any) -> Any:
        """Raises ``error``."""
        raise error


type Going = tuple[sharded.State, int, Mesh]
"""What the loop goes on with: the state, how many steps are in it, and the mesh it is on."""


@dataclass(frozen=True)
class Loop:
    """The training loop's arguments; see the command line's help for those not said here."""

    trainer: sharded.Trainer
    text: npt.NDArray[np.uint8]
    reporter: Reporter
    steps: int
    manager: Manager | Steady
    checkpoints: sharded.Checkpoints
    checkpoint_period: int
    min_step_time: float = 0.0

    def run(self) -> None:
        """Trains on whatever slices there are until all steps are taken.

        Raises:
            jax.errors.JaxRuntimeError: The runtime failed.
            ElasticError: Slices were lost too often, or were too few for too long.
        """
        try:
            going = self._begin(self.manager.good_slice_to_devices)
            self.manager.maybe_snapshot(step=going[1], snapshot=going[0])
        except jax.errors.JaxRuntimeError as error:
            going = self._recover(error)
        state, step, mesh = going
        # From here on the loop alone holds the state, which each step donates.
        del going
        while step < self.steps:
            due = time.monotonic() + self.min_step_time
            try:
                state, loss = self.trainer.step(state, self.text, step, mesh)
                step += 1
                self.manager.maybe_snapshot(step=step, snapshot=state)
                # Reading the loss waits for the step, and so finds out if a slice is gone.
                self.reporter.step(step, float(loss), sorted(self.manager.good_slice_to_devices))
                if step % self.checkpoint_period == 0 or step == self.steps:
                    self.checkpoints.save(step, state)
                if step == self.steps:
                    self.checkpoints.wait()
                elif returned := self.manager.maybe_reshard_up(
                    step=step, snapshot=state, elastic_handler=self._go_on
                ):
                    state, step, mesh = returned
            except jax.errors.JaxRuntimeError as error:
                state, step, mesh = self._recover(error)
            time.sleep(max(0.0, due - time.monotonic()))

    def _begin(self, slices: sharded.Slices) -> Going:
        """From the newest checkpoint, else from the start."""
        report, indices = self.reporter, sorted(slices)
        mesh = sharded.build_mesh(slices)
        report.event("slices", active=indices)
        report.say(f"training on slices {indices}, {mesh.shape['fsdp']} devices each")
        state, step, restored = self.checkpoints.restore_or_init(self.trainer, mesh)
        if restored:
            report.event("restore", step=step, slices=indices)
            report.say(f"restored the checkpoint of step {step}")
        return state, step, mesh

    def _recover(self, error: jax.errors.JaxRuntimeError) -> Going:
        report = self.reporter
        report.event("error", message=first_line(error))
        report.say(f"after step {report.furthest}: {first_line(error)}")
        going: Going = self.manager.maybe_reshard_down(error=error, elastic_handler=self._go_on)
        return going

    def _go_on(self, elastic_utils: ElasticUtils) -> Going:
        """The elastic handler: after a loss, and when slices are taken in or left."""
        # A save that is under way may need a slice that goes, or has gone.
        self.checkpoints.settle()
        slices = elastic_utils.good_slice_to_devices
        try:
            step, state = elastic_utils.get_next_snapshot()
        except NoSnapshotError:
            return self._begin(slices)
        report, mesh, indices = self.reporter, sharded.build_mesh(slices), sorted(slices)
        report.event("slices", active=indices)
        report.event("snapshot", step=step, slices=indices)
        report.say(f"training on slices {indices}, from the snapshot of step {step}")
        return state, step, mesh


def first_line(error: Exception) -> str:
    """What an error says; the runtime's own stack traces, which may follow, say nothing here."""
    return str(error).partition("\n")[0]


def connect(min_slices: int) -> Sequence[jax.Device]:
    """The devices to train on: the service's if the program was started for one, else JAX's."""
    if "PATHWAYS_CLUSTER_ENV" in os.environ:
        return pathways_elastic.connect(min_slices=min_slices)
    # For a runtime without a service around it, if JAX_PLATFORMS says that there is one.
    pathwaysutils.initialize()
    return jax.devices()


@contextlib.contextmanager
def managing(
    devices: Sequence[jax.Device], options: argparse.Namespace, reporter: Reporter
) -> Iterator[Manager | Steady]:
    """The manager of the service's slices, or its stand-in where there are none."""
    if not pathwaysutils.is_pathways_backend_used():
        yield Steady(devices)
        return

    def tell(event: Event) -> None:
        reporter.say(f"{event.kind}: {event.reason}")

    with Manager(
        devices,
        snapshot_period=options.snapshot_period,
        snapshot_buffer_size=1,
        reshard_check_period=5,
        max_elastic_down_event_count=MAX_LOSSES,
        max_reshard_retry_count=3,
        min_slices=options.min_slices,
        poll_interval_s=options.poll_interval,
        on_event=tell,
    ) as manager:
        yield manager


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
    add("--snapshot-period", type=int, default=10, help="steps between snapshots in memory")
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
    positive = "steps global_batch seq_len layers width min_slices log_period"
    for name in [*positive.split(), "checkpoint_period", "snapshot_period"]:
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
    logging.getLogger("pathways_elastic").setLevel(logging.ERROR)
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
            devices = connect(options.min_slices)
            slices = sharded.group_by_slice(devices)
            if options.min_slices > len(slices):
                return _refuse(
                    f"--min-slices is {options.min_slices}, but there are only {len(slices)} slices"
                )
            with (
                managing(devices, options, reporter) as manager,
                sharded.Checkpoints(directory.absolute(), stop.shield) as checkpoints,
            ):
                loop = Loop(
                    trainer=sharded.Trainer(run),
                    text=load_text(TEXT_BYTES),
                    reporter=reporter,
                    steps=options.steps,
                    manager=manager,
                    checkpoints=checkpoints,
                    checkpoint_period=options.checkpoint_period,
                    min_step_time=options.min_step_time,
                )
                loop.run()
        except Stopped as stopped:
            reporter.say(f"\nstopped by {stopped} after step {reporter.furthest}")
            return 128 + stopped.signum
        except (ElasticError, jax.errors.JaxRuntimeError) as error:
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
