# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""A campaign: a service that trains, faults one after the other, and then calm.

A fault does not wait for what came before it to be over: only for a victim. It ends with a report;
what was violated is in it. Everything random follows from the seed.
"""

import contextlib
import math
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.checker import Checker
from tests.chaos.faults import Fault, Hit, Missed
from tests.chaos.judging import Violation
from tests.chaos.schedule import Entry, schedule
from tests.chaos.stage import (
    BUDGET,
    ONLOOKER,
    SLICE_BUDGET,
    Actors,
    Stage,
    slices_of,
    wait_for,
)
from tests.chaos.workload import Workload

_START_S = 180.0
# In which everything must be well again once the faults have stopped.
SETTLE_S = 180.0
_TRAIN_S = 90.0
_END_S = 90.0
_UNDO_AGAIN_S = 2.0
_REPAIR_EVERY_S = 8.0
# Left unspent, so that no budget runs out by what the service does by itself.
_RESERVE = 3
# What a slice may be hit, so that its waits between restarts stay short.
_SLICE_HITS = 4

# No invariant of architecture.md: what the service is there for.
LIVENESS = 0


@dataclass
class _Open:
    """A fault whose effect is not over."""

    name: str
    hit: Hit
    counts_from: float
    undo_at: float
    undone: bool


@dataclass
class Report:
    """What a campaign has shown."""

    seed: int
    faults: Counter[str] = field(default_factory=Counter)
    missed: int = 0
    recoveries: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    violations: list[Violation] = field(default_factory=list)
    seconds: float = 0.0
    steps: int = 0
    starts: int = 0
    settled_s: float = 0.0
    ended_s: float = 0.0
    spent: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    repairs: Counter[str] = field(default_factory=Counter)

    def lines(self) -> list[str]:
        """For people."""
        found = [
            f"seed {self.seed}: {self.faults.total()} faults in {self.seconds:.0f} s "
            f"({self.missed} found no victim); then ready after {self.settled_s:.1f} s and ended "
            f"after {self.ended_s:.1f} s; {self.steps} steps, training started {self.starts} times"
        ]
        where = ", ".join(f"{seconds:.0f} s {what}" for what, seconds in self.spent.items())
        found.append(f"  of that time: {where}")
        found += [f"  {count} x {words}" for words, count in self.repairs.items()]
        width = max(map(len, self.faults), default=0)
        for name, count in sorted(self.faults.items()):
            times = self.recoveries[name]
            words = f"  {name:{width}}  {count:4d}"
            if times:
                words += f"  recovery median {statistics.median(times):5.1f} s"
                words += f"  max {max(times):5.1f} s"
            if len(times) < count:
                words += f"  ({count - len(times)} not seen to recover by themselves)"
            found.append(words)
        found.append(f"{len(self.violations)} violations")
        found += [f"  {violation}" for violation in self.violations]
        return found


class Campaign:
    """One run of chaos over a stage; what its faults see of the world.

    Args:
        stage: Not started yet.
        faults: All kinds.
        directory: Of the training's files; it must exist.
        say: Is told of progress.
    """

    def __init__(
        self,
        stage: Stage,
        faults: Sequence[Fault],
        checker: Checker,
        directory: Path,
        say: Callable[[str], None],
    ) -> None:
        self.stage = stage
        self.actors = Actors(lambda: checker.latest)
        self.cause = checker.cause
        self.cancelled = checker.cancelled
        self._checker = checker
        self._faults = {fault.name: fault for fault in faults}
        self._say = say
        self._open: list[_Open] = []
        self._spent: dict[str, list[float]] = defaultdict(list)
        environ = {**stage.service.environ, ONLOOKER: "1"}
        self._workload = Workload(directory, environ, stage.become)
        self._began = time.monotonic()
        self._repaired = self._began
        self._told = 0
        self._report = Report(0)

    def run(self, seed: int, faults: int, longest_s: float = math.inf) -> Report:
        """Starts the service, does so many faults, and ends it; in the report is what went wrong.

        The first violation ends it early. After ``longest_s`` no further fault is begun.
        """
        report = self._report = Report(seed)
        weights = {name: fault.weight for name, fault in self._faults.items()}
        self._checker.start()
        try:
            with self._timed("its start"):
                self._start()
            for entry in schedule(seed, faults, weights):
                if self._checker.violations or time.monotonic() - self._began > longest_s:
                    break
                with self._timed("pauses that the schedule asks for"):
                    self._pause(entry.delay_s)
                self._inject(entry)
            self._settle()
            self._end()
        except TimeoutError as error:
            self._fail(f"{error}: {self._state()}")
        finally:
            self._workload.close()
            for words in self._workload.wrong:
                self._fail(f"a program has computed what is wrong: {words}")
            report.violations += self._checker.violations
            report.seconds = time.monotonic() - self._began
            report.steps, report.starts = self._workload.step, self._workload.starts
        return report

    # ------------------------------------------------------------ what faults see

    def field(self, *names: str) -> object:
        value: object = self._checker.latest.status
        for name in names:
            value = value.get(name) if isinstance(value, dict) else None
        return value

    def slice(self, index: int) -> dict[str, object]:
        found = slices_of(dict(self._checker.latest.status))
        return next((one for one in found if one.get("index") == index), {})

    def healthy(self) -> bool:
        seen = self._checker.latest
        indices = range(self.stage.slices)
        states = {str(self.slice(index).get("state")) for index in indices}
        # Not by status.json alone: who does not look any more shows slices that have gone.
        running = {w.slice for w in seen.workers if w.connected and not w.stopped}
        ready = {index for index in indices if self.slice(index).get("state") == "READY"}
        well = states <= {"READY", "CANCELLED"} and ready <= running and bool(ready)
        announced = seen.published is not None and seen.answers
        return well and announced and self.field("service") == "READY"

    def can_spare(self, role: str) -> bool:
        limit, window = SLICE_BUDGET if role.startswith("slice") else BUDGET
        limit = min(limit - _RESERVE, _SLICE_HITS) if role.startswith("slice") else limit - _RESERVE
        now = time.monotonic()
        # A little longer than the window: what we did is done a little later.
        return sum(now - at < window * 1.2 for at in self._spent[role]) < limit

    def spend(self, role: str) -> None:
        self._spent[role].append(time.monotonic())

    def renew(self, end: Callable[[], None], *, withdrawn: bool = True) -> None:
        with self._timed("services ended and started anew"):
            self._undo_all()
            end()
            if not withdrawn:
                self._checker.expect_power_cut()
            self._await_nothing_left(withdrawn)
            self._open.clear()
            self._start()

    # ------------------------------------------------------------ phases

    def _start(self) -> None:
        self._spent.clear()
        self.stage.start()
        wait_for(self.healthy, _START_S, "the service is ready", self._tend)

    def _pause(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._tend()
            time.sleep(0.1)

    def _inject(self, entry: Entry) -> None:
        """Does the first fault of the entry's order that can be done; waits until one can be."""
        order = list(entry.order)
        while True:
            with self._timed("waiting for a victim"):
                name = self._first_possible(order)
            try:
                with self._timed("faults themselves"):
                    hit = self._faults[name].do(self, entry.dice)
                break
            except Missed as missed:
                order.remove(name)
                self._report.missed += 1
                self._say(f"fault {entry.number}: {name}: missed: {missed}")
        self._report.faults[name] += 1
        undo_at = time.monotonic() + hit.lasts_s
        self._open.append(_Open(name, hit, undo_at, undo_at, undone=hit.undo is None))
        self._say(f"fault {entry.number}: {name}: {hit.words}")

    def _first_possible(self, order: Sequence[str]) -> str:
        def first() -> str:
            return next((name for name in order if self._faults[name].possible(self)), "")

        return wait_for(first, SETTLE_S, "a fault is possible", self._tend)

    def _settle(self) -> None:
        """The calm: what was done is undone, everything gets well, and training goes on."""
        step = self._workload.step
        try:
            self._undo_all()
            began = time.monotonic()
            wait_for(self.healthy, SETTLE_S, "every slice is ready again", self._tend)
            self._report.settled_s = time.monotonic() - began
            wait_for(
                lambda: self._workload.step > step,
                _TRAIN_S,
                f"training goes on after step {step}; see {self._workload.log}",
                self._tend,
            )
        except TimeoutError as error:
            self._fail(f"{error}: {self._state()}")

    def _end(self) -> None:
        self._workload.close()
        began = time.monotonic()
        self.stage.stop()
        try:
            self._await_nothing_left()
        except TimeoutError as error:
            self._fail(str(error))
        self._report.ended_s = time.monotonic() - began

    def _await_nothing_left(self, withdrawn: bool = True) -> None:
        # The checker has its own bound for each part; this one only ends the waiting.
        since = time.time()

        def gone() -> bool:
            seen = self._checker.latest
            live = seen.tasks is None or any(task.live for task in seen.tasks)
            there = seen.processes or live or (withdrawn and seen.published)
            return seen.time > since and not there

        try:
            wait_for(gone, _END_S, "nothing of the service is left", lambda: None)
        except TimeoutError as error:
            raise TimeoutError(f"{error}: {self._left()}") from None

    # ------------------------------------------------------------ meanwhile

    def _tend(self) -> None:
        """Undoes what is due, notes what has recovered, keeps the training running."""
        now = time.monotonic()
        for one in self._open:
            if not one.undone and now >= one.undo_at:
                with self._timed("undoing"):
                    self._undo(one)
        for one in [one for one in self._open if one.undone and one.hit.recovered()]:
            self._open.remove(one)
            self._report.recoveries[one.name].append(time.monotonic() - one.counts_from)
        # Not while the scheduler gives no answer.
        if now - self._repaired > _REPAIR_EVERY_S and self._checker.latest.tasks is not None:
            self._repaired = now
            with self._timed("an administrator's repairs"):
                words = self.stage.repair()
            if words:
                self._report.repairs[words] += 1
                self._say(words)
        self._workload.tend()
        found = self._checker.violations
        for violation in found[self._told :]:
            self._say(str(violation))
        self._told = len(found)

    @contextlib.contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        """For the report: where the time has gone. What is timed within is not counted twice."""
        began, within = time.monotonic(), sum(self._report.spent.values())
        try:
            yield
        finally:
            elsewhere = sum(self._report.spent.values()) - within
            self._report.spent[what] += time.monotonic() - began - elsewhere

    def _undo(self, one: _Open) -> None:
        assert one.hit.undo is not None
        try:
            one.hit.undo()
        except Missed:
            # Slurm is away itself, or the machine too busy.
            one.undo_at = time.monotonic() + _UNDO_AGAIN_S
            return
        one.undone = True
        one.counts_from = time.monotonic()

    def _undo_all(self) -> None:
        """The last first: slurmctld may have to be back for the others."""
        deadline = time.monotonic() + _END_S
        while todo := [one for one in self._open if not one.undone]:
            for one in reversed(todo):
                self._undo(one)
            if time.monotonic() > deadline:
                raise TimeoutError(f"can't be undone: {[one.hit.words for one in todo]}")

    def _fail(self, words: str) -> None:
        violation = Violation(LIVENESS, time.time(), words)
        self._report.violations.append(violation)
        self._say(str(violation))

    def _state(self) -> str:
        slices = [
            f"slice {one.get('index')} {one.get('state')} ({one.get('reason')})"
            for one in slices_of(dict(self._checker.latest.status))
        ]
        service = f"service {self.field('service')} ({self.field('reason')})"
        return "; ".join([service, *slices, self.stage.nodes()])

    def _left(self) -> str:
        seen = self._checker.latest
        processes = [f"{process.pid} {' '.join(process.argv)[:80]}" for process in seen.processes]
        tasks = None if seen.tasks is None else [task for task in seen.tasks if task.live]
        return f"processes {processes}, tasks {tasks}, cluster.env {seen.published}"
