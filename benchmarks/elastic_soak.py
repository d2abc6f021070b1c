# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Many training runs whose slices are killed at random moments: does each end as if none were?

Usage: python benchmarks/elastic_soak.py [--runs N=100] [--steps N=40] [--moments N=3] [--seed N]

Starts a service of three slices on 127.106.0.0/16. Each run trains the transformer of
docs/examples; its workers are killed with SIGKILL, come back after a while, and are killed again:
in a step, in a snapshot, in a handler, two at once, the same one twice, and while the program
takes a slice back. A run has succeeded if its parameters agree with those of a run without losses.
Exit code 0 if all have.
"""

import argparse
import collections
import gc
import itertools
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

import elastic_service
from elastic_service import Service

if TYPE_CHECKING:
    import elastic_training
    from pathways_elastic.manager import ElasticUtils


KINDS = ("step", "snapshot", "handler", "two", "twice", "up")
SNAPSHOT_PERIOD = 5
# Adam divides by the gradient's size: where that is tiny, the order of a sum shows.
TOLERANCE = 2e-3


@dataclass
class Chaos:
    """Kills workers at the moments of a plan, and has them come back.

    Args:
        service: Whose.
        moments: Step → what happens there.
        chance: Decides who, and when exactly.
    """

    service: Service
    moments: dict[int, str]
    chance: random.Random
    kills: collections.Counter[str] = field(default_factory=collections.Counter)
    _armed: set[str] = field(default_factory=set)
    _timers: list[threading.Timer] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def before_step(self, step: int) -> None:
        """Now, or within the time of a step or so."""
        kind = self.moments.pop(step, None)
        if kind is not None:
            self._await_spare()
        if kind == "snapshot":
            # It is taken at the next such step, and must not be over before.
            self.moments[-(-step // SNAPSHOT_PERIOD) * SNAPSHOT_PERIOD] = "in snapshot"
            kind = self.moments.pop(step, None)
        if kind == "in snapshot":
            self._armed.add("snapshot")
        elif kind in ("handler", "up"):
            # It takes a loss to get there.
            self._armed.add(kind)
            self._later(self.chance.uniform(0, 0.1), kind, 1)
        elif kind in ("step", "two", "twice"):
            self._later(self.chance.uniform(0, 0.15), kind, 2 if kind == "two" else 1)

    def _await_spare(self) -> None:
        """Until a worker can be killed and another one is left: those that are dead come back."""
        while sum(map(self.service.alive, self.service.slices)) < 2:
            time.sleep(0.02)

    def after_snapshot(self) -> None:
        """Copies are on their way, if it was a step with a snapshot."""
        if "snapshot" in self._armed:
            self._armed.discard("snapshot")
            self._kill("snapshot", 1)

    def after_step(self, step: int, slices: Sequence[int]) -> None:
        """Nothing happens then."""

    def in_handler(self, utils: "ElasticUtils", *, growing: bool) -> None:
        """The state is restored, and the handler goes on."""
        kind = "up" if growing else "handler"
        if kind in self._armed and len(utils.good_slice_indices) > 1:
            self._armed.discard(kind)
            self._kill(kind, 1, among=sorted(utils.good_slice_indices))

    def _later(self, delay_s: float, kind: str, count: int) -> None:
        timer = threading.Timer(delay_s, self._kill, (kind, count))
        timer.daemon = True
        self._timers.append(timer)
        timer.start()

    def _kill(self, kind: str, count: int, among: Sequence[int] | None = None) -> None:
        with self._lock:
            alive = [i for i in among or self.service.slices if self.service.alive(i)]
            # One is left, so that there is something to go on with.
            spare = sum(map(self.service.alive, self.service.slices)) - 1
            victims = self.chance.sample(alive, min(count, spare, len(alive)))
            for index in victims:
                self.service.kill(index)
                self.kills[kind] += 1
            back_s = self.chance.uniform(0.0, 2.5)
        for index in victims:
            again = kind == "twice"
            timer = threading.Timer(back_s, self._revive, (index, again))
            timer.daemon = True
            self._timers.append(timer)
            timer.start()

    def _revive(self, index: int, again: bool) -> None:
        with self._lock:
            self.service.revive(index)
        if again:
            self._later_same(index)

    def _later_same(self, index: int) -> None:
        def kill_again() -> None:
            self._kill("twice again", 1, among=[index])

        timer = threading.Timer(self.chance.uniform(0.3, 1.0), kill_again)
        timer.daemon = True
        self._timers.append(timer)
        timer.start()

    def heal(self) -> None:
        """Waits for what is to come, and for all workers to live."""
        self._armed.clear()
        while self._timers:
            self._timers.pop().join()
        for index in self.service.slices:
            self.service.revive(index)


@dataclass(frozen=True)
class Outcome:
    """Of many runs: how many have failed, and the kills of all, by kind."""

    failures: int
    kills: collections.Counter[str]


def soak(service: Service, runs: int, steps: int, seed: int, moments: int = 3) -> Outcome:
    """Does what the module says.

    Args:
        service: Whose workers are killed.
        runs: How many runs.
        steps: Of each.
        seed: Of all that is random.
        moments: At which something happens, in each run.
    """
    import jax
    import pathwaysutils

    import elastic_training
    from pathways_elastic.manager import Event, EventKind, Manager

    pathwaysutils.initialize()
    program = elastic_training.Program(steps)
    events: list[Event] = []

    def run(chaos: Chaos) -> "elastic_training.Parameters":
        with Manager(
            jax.devices(),
            snapshot_period=SNAPSHOT_PERIOD,
            snapshot_buffer_size=2,
            reshard_check_period=2,
            max_elastic_down_event_count=20,
            max_reshard_retry_count=5,
            poll_interval_s=0.1,
            probe_timeout_s=20,
            slices_timeout_s=60,
            handler_timeout_s=60,
            on_event=events.append,
        ) as manager:
            return program.train(manager, chaos)

    expected = run(Chaos(service, {}, random.Random(seed)))
    this, proxy = psutil.Process(), service.proxy()
    failures, kills = 0, collections.Counter[str]()
    kinds = itertools.cycle(KINDS)
    for number in range(runs):
        chance = random.Random(seed * 1_000_003 + number)
        # Each kind comes in turn, at a moment of its own.
        plan = {step: next(kinds) for step in chance.sample(range(1, steps - 2), moments)}
        chaos = Chaos(service, plan, chance)
        began, outcome = time.monotonic(), "ok"
        try:
            difference = elastic_training.largest_difference(run(chaos), expected)
            if not difference <= TOLERANCE:
                outcome = f"differs by {difference:g}"
        except Exception as error:
            outcome = f"{type(error).__name__}: {error}"
        took = time.monotonic() - began
        chaos.heal()
        failures += outcome != "ok"
        kills += chaos.kills
        gc.collect()
        client_mib, proxy_mib = (p.memory_info().rss / 2**20 for p in (this, proxy))
        print(
            f"run {number + 1:3}/{runs}: {outcome}; kills {dict(chaos.kills)}; {took:.1f} s; "
            f"client {client_mib:.0f} MiB, proxy {proxy_mib:.0f} MiB",
            flush=True,
        )
    print(f"{runs - failures} of {runs} runs ended with the parameters of an undisturbed one")
    print(f"kills: {sum(kills.values())}: {dict(sorted(kills.items()))}")
    seen = collections.Counter(event.kind for event in events)
    print(", ".join(f"{kind} {seen[kind]}" for kind in EventKind))
    if program.recoveries:
        median, longest = statistics.median(program.recoveries), max(program.recoveries)
        print(f"from the error to the next completed step: {median:.2f} s, at most {longest:.2f} s")
        print(f"steps taken again: at most {max(program.lost)}, snapshot period {SNAPSHOT_PERIOD}")
    return Outcome(failures, kills)


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=100, help="training runs (default: 100)")
    parser.add_argument("--steps", type=int, default=40, help="of each run (default: 40)")
    parser.add_argument("--moments", type=int, default=3, help="with kills, of each (default: 3)")
    parser.add_argument("--seed", type=int, default=1, help="of the moments (default: 1)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, elastic_service.serve(Path(directory)) as up:
        elastic_service.prepare_jax(up)
        try:
            outcome = soak(up, options.runs, options.steps, options.seed, options.moments)
            return min(1, outcome.failures)
        finally:
            elastic_service.release_jax()


if __name__ == "__main__":
    sys.exit(main())
