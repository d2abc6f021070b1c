# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""From the kill of a slice to the next completed step: pathways_elastic and elastic_retry.

Usage: python benchmarks/elastic_recovery.py [--kills N=9]

Starts a service of three slices on 127.106.0.0/16 and trains the transformer of docs/examples with
each: with the manager of pathways_elastic, and with pathwaysutils' elastic_retry and Orbax
checkpoints. Same trainer, same service, same period between snapshots or
checkpoints. One slice after the other is killed in the middle of a
step and comes back; the first round compiles for each set of slices and does not count. Then it
measures what snapshots cost: the time of ten steps with one, and without.
"""

import argparse
import collections
import logging
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

import elastic_service
from elastic_service import Service

if TYPE_CHECKING:
    from elastic_training import Program
    from pathways_elastic.manager import ElasticUtils

PERIOD = 10
ALL = (0, 1, 2)
# Steps on all slices before each kill.
CALM_STEPS = 3


class Over(Exception):
    """All kills are done."""


@dataclass
class Killer:
    """Is told of each completed step, kills slices, and notes how long the next one takes."""

    service: Service
    kills: int
    chance: random.Random = field(default_factory=lambda: random.Random(1))
    took_s: list[float] = field(default_factory=list)
    lost_steps: list[int] = field(default_factory=list)
    _calm: int = 0
    _victim: int | None = None
    _killed_s: float | None = None
    _last_step: int = 0
    _step_s: float = 0.1
    _completed_s: float = 0.0

    def completed(self, step: int, slices: Sequence[int]) -> None:
        """Step ``step`` is done on these slices."""
        now = time.monotonic()
        if self._victim is None:
            self._calm = self._calm + 1 if tuple(slices) == ALL else 0
            self._step_s = now - self._completed_s
            if self._calm > CALM_STEPS + self.chance.randrange(PERIOD):
                if len(self.took_s) == self.kills:
                    raise Over
                self._victim = len(self.took_s) % len(ALL)
                threading.Timer(self.chance.uniform(0, self._step_s), self._kill).start()
        elif self._victim not in slices and self._killed_s is not None:
            self.took_s.append(now - self._killed_s)
            self.lost_steps.append(self._last_step + 1 - step)
            print(f"slice {self._victim}: {self.took_s[-1]:.2f} s", file=sys.stderr, flush=True)
            self.service.revive(self._victim)
            self._victim = self._killed_s = None
            self._calm = 0
        self._last_step, self._completed_s = step, now

    def _kill(self) -> None:
        assert self._victim is not None
        self._killed_s = time.monotonic()
        self.service.kill(self._victim)


class Watcher:
    """Shows a program's moments to a killer."""

    def __init__(self, killer: Killer) -> None:
        self._killer = killer

    def before_step(self, step: int) -> None:
        """Nothing happens then."""

    def after_snapshot(self) -> None:
        """Nothing happens then."""

    def after_step(self, step: int, slices: Sequence[int]) -> None:
        """Passed on."""
        self._killer.completed(step, slices)

    def in_handler(self, utils: "ElasticUtils", *, growing: bool) -> None:
        """Nothing happens then."""


def with_manager(program: "Program", killer: Killer) -> None:
    """Trains with the manager until all kills are done."""
    import jax

    from pathways_elastic.manager import Manager

    with Manager(
        jax.devices(),
        snapshot_period=PERIOD,
        snapshot_buffer_size=1,
        reshard_check_period=2,
        max_elastic_down_event_count=1000,
        max_reshard_retry_count=3,
        poll_interval_s=0.1,
    ) as manager:
        try:
            program.train(manager, Watcher(killer))
        except Over:
            return
    raise AssertionError("too few steps for so many kills")


def with_elastic_retry(program: "Program", killer: Killer) -> None:
    """Trains with elastic_retry and Orbax until all kills are done."""
    import elastic_retry_training

    with tempfile.TemporaryDirectory() as directory:
        try:
            elastic_retry_training.train(program, Path(directory), PERIOD, killer.completed)
        except Over:
            return
    raise AssertionError("too few steps for so many kills")


def overhead(service: Service, program: "Program", rounds: int) -> dict[str, list[float]]:
    """Seconds of ten steps without and with a snapshot, taken in turns; and of taking it.

    Also the processors' seconds, of this process and the proxy, which a busy machine changes less.
    """
    import jax

    import sharded_training
    from pathways_elastic.manager import Manager

    processes = psutil.Process(), service.proxy()

    def busy_s() -> float:
        return sum(sum(process.cpu_times()[:2]) for process in processes)

    seconds: dict[str, list[float]] = collections.defaultdict(list)
    with Manager(jax.devices(), PERIOD, 1, 5, 1, 1) as manager:
        mesh = sharded_training.build_mesh(manager.good_slice_to_devices)
        state: Any = program.trainer.init(mesh)
        step = 0
        for number in range(2 * (rounds + 1)):
            name = ("without", "with")[number % 2]
            began, busy_before_s = time.perf_counter(), busy_s()
            for _ in range(PERIOD):
                step += 1
                state, loss = program.trainer.step(state, program.text, step, mesh)
                if name == "with":
                    before = time.perf_counter()
                    manager.maybe_snapshot(step=step, snapshot=state)
                    if step % PERIOD == 0:
                        seconds["blocked"].append(time.perf_counter() - before)
                float(loss)
            # The first round compiles.
            if number > 1:
                seconds[name].append(time.perf_counter() - began)
                seconds[f"busy {name}"].append(busy_s() - busy_before_s)
    return seconds


def show(name: str, killer: Killer) -> float:
    """Prints a line; returns the median."""
    counted = killer.took_s[len(ALL) :]
    median = statistics.median(counted)
    print(
        f"{name}: kill to next completed step: median {median:.2f} s of {len(counted)} "
        f"({min(counted):.2f} to {max(counted):.2f}); for slices not seen before "
        f"{statistics.median(killer.took_s[: len(ALL)]):.2f} s; steps lost: at most "
        f"{max(killer.lost_steps)}",
        flush=True,
    )
    return median


def run(service: Service, kills: int, rounds: int) -> None:
    """Measures all and prints it."""
    import pathwaysutils

    import elastic_training

    logging.getLogger("pathwaysutils").setLevel(logging.CRITICAL)
    logging.getLogger("absl").setLevel(logging.ERROR)
    logging.getLogger("pathways_elastic").setLevel(logging.ERROR)
    pathwaysutils.initialize()
    program = elastic_training.Program(1_000_000, elastic_training.example_trainer())
    seconds = overhead(service, program, rounds)
    without, having = (statistics.median(seconds[name]) for name in ("without", "with"))
    # The clock of processors is coarse; the mean is right all the same.
    busy, busy_having = (statistics.mean(seconds[f"busy {n}"]) for n in ("without", "with"))
    print(
        f"ten steps: median {without:.3f} s, with a snapshot {having:.3f} s "
        f"({having / without - 1:+.1%}), processors {busy:.3f} s and {busy_having:.3f} s "
        f"({busy_having / busy - 1:+.1%}); taking it blocked the loop for "
        f"{statistics.median(seconds['blocked']) * 1e3:.1f} ms",
        flush=True,
    )
    medians = []
    for name, train in (
        ("pathways_elastic", with_manager),
        ("elastic_retry with Orbax", with_elastic_retry),
    ):
        killer = Killer(service, kills + len(ALL))
        train(program, killer)
        medians.append(show(name, killer))
    print(f"ratio {medians[0] / medians[1]:.2f}")


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=9, help="that count, of each (default: 9)")
    parser.add_argument("--rounds", type=int, default=20, help="of ten steps (default: 20)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, elastic_service.serve(Path(directory)) as up:
        elastic_service.prepare_jax(up)
        try:
            run(up, options.kills, options.rounds)
        finally:
            elastic_service.release_jax()
    return 0


if __name__ == "__main__":
    sys.exit(main())
