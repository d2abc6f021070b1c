# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Invariants 4 and 6: nothing is done without a cause, and nothing without end. Pure.

Standard library only; a test enforces it.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from tests.chaos.judging import SEEN_LATE_S, Bounds, Causes, Since, said
from tests.chaos.sightings import Sighting

# A restart that was ordered may take so long to come about.
_FREE_WITHIN_S = 120.0

# A service's words for itself while it does not end.
_GOES_ON = ("STARTING", "READY", "DEGRADED")

# What a supervisor does to a slice, or concludes of it, because of what the scheduler says.
_CONCLUSIONS = frozenset(
    {
        "ArraySubmitted",
        "SliceCancelled",
        "SliceFailed",
        "SliceLost",
        "SliceReleased",
        "SliceRequeued",
    }
)


@dataclass
class Restarts:
    """How often each slice has been restarted, as anybody can see. It feeds two rules.

    Of Slurm's tasks squeue tells it. Elsewhere each incarnation that was seen counts.
    """

    invariant: int = 4
    _slurm: dict[tuple[str, str, int], int] = field(default_factory=dict)
    _seen: dict[tuple[str, int], set[int]] = field(default_factory=lambda: defaultdict(set))
    _times: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    _run: str = ""

    @property
    def slices(self) -> set[int]:
        return set(self._times) | {index for _, index in self._seen}

    def totals(self) -> dict[int, int]:
        return {index: len(times) for index, times in self._times.items()}

    def times(self, index: int) -> list[float]:
        return self._times[index]

    def look(self, seen: Sighting) -> Iterator[str]:
        self._run = str(seen.status.get("run_id") or self._run)
        counted = [task for task in seen.tasks or () if task.restarts is not None]
        for task in counted:
            key = (task.name, task.array, task.index)
            # slurmctld may forget the newest ones when it is killed.
            more = (task.restarts or 0) - self._slurm.get(key, 0)
            if more > 0:
                self._slurm[key] = task.restarts or 0
                self._times[task.index] += [seen.time] * more
        for worker in seen.workers:
            known = self._seen[self._run, worker.slice]
            if worker.incarnation not in known:
                if known and not self._slurm and not counted:
                    self._times[worker.slice].append(seen.time)
                known.add(worker.incarnation)
        yield from ()


@dataclass
class NoConclusionWhileBlind:
    """While the scheduler gives no answer, nothing is concluded about any slice, nor done."""

    bounds: Bounds
    invariant: int = 4
    _blind_since: float | None = None
    _held: list[tuple[float, str]] = field(default_factory=list)

    def look(self, seen: Sighting) -> Iterator[str]:
        if seen.tasks is not None:
            # The service may have been answered a moment before we were.
            self._blind_since = None
            self._held.clear()
            return
        self._blind_since = seen.time if self._blind_since is None else self._blind_since
        for at, text in said(seen, _CONCLUSIONS):
            if at > self._blind_since + self.bounds.blind_s:
                self._held.append((at, text))
        late = [text for at, text in self._held if seen.time > at + 2 * self.bounds.blind_s]
        self._held = [held for held in self._held if held[1] not in late]
        for text in late:
            yield f"the scheduler gives no answer, and the service concludes: {text}"


@dataclass
class EveryRestartHasACause:
    """No slice is restarted, taken for lost or cancelled that nothing has happened to."""

    causes: Causes
    bounds: Bounds
    counts: Restarts
    invariant: int = 4
    _lost: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    _told: dict[tuple[str, int], int] = field(default_factory=dict)
    _rm: Since = field(default_factory=Since)
    _alone: dict[tuple[int, int], Since] = field(default_factory=lambda: defaultdict(Since))
    _expired: set[tuple[int, int, str]] = field(default_factory=set)
    _gone: dict[int, Since] = field(default_factory=lambda: defaultdict(Since))

    def look(self, seen: Sighting) -> Iterator[str]:
        self._leases(seen)
        yield from self._compare("restarted", self.counts.totals())
        for _, text in said(seen, {"SliceLost"}):
            if found := re.search(r'"subject": "slice (\d+)"', text):
                # Twice of the same run counts once: a slurmctld that was killed may have forgotten
                # an end that was told already.
                self._lost[int(found[1])].add(self.counts.totals().get(int(found[1]), 0))
        yield from self._compare("declared lost", {i: len(runs) for i, runs in self._lost.items()})
        yield from self._cancelled(seen)

    def _leases(self, seen: Sighting) -> None:
        """Workers without their RM end themselves: a cause that lies in no fault of their own."""
        # A little less than the lease: what is seen late must not be taken for a fault.
        limit = self.bounds.lease_s * 0.6
        if self._rm.over(seen.rm is False, seen.time, limit):
            self._rm = Since()
            for index in self.counts.slices:
                self.causes.expect(index, 1, seen.time)
        for worker in seen.workers:
            run = (worker.slice, worker.incarnation, str(seen.status.get("run_id")))
            alone = self._alone[worker.process.key]
            if alone.over(not worker.connected, seen.time, limit) and run not in self._expired:
                self._expired.add(run)
                self.causes.expect(worker.slice, 1, seen.time)

    def _compare(self, what: str, counted: Mapping[int, int]) -> Iterator[str]:
        for index, count in counted.items():
            explained = self.causes.restarts[index]
            if count > explained and count > self._told.get((what, index), 0):
                self._told[what, index] = count
                yield (
                    f"slice {index} has been {what} {count} times, and only {explained} of them "
                    "have a cause"
                )

    def _cancelled(self, seen: Sighting) -> Iterator[str]:
        # A service that ends cancels its array, and says so a moment later.
        goes_on = seen.named("supervisor") and seen.status.get("service") in _GOES_ON
        run = str(seen.status.get("run_id"))
        gone = {t.index for t in seen.tasks or () if t.state == "CANCELLED" and run in t.name}
        for index in self.counts.slices:
            wrong = bool(goes_on) and index in gone - self.causes.cancelled
            if self._gone[index].over(wrong, seen.time, SEEN_LATE_S):
                yield f"slice {index} was cancelled, and nobody has ordered that"


@dataclass
class WithinBudget:
    """No more automatic restarts within a window than its budget allows."""

    bounds: Bounds
    causes: Causes
    counts: Restarts
    invariant: int = 6
    _starts: dict[str, dict[tuple[int, int], float]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    _before: frozenset[tuple[int, int]] = frozenset()
    _told: set[tuple[str, int]] = field(default_factory=set)

    def look(self, seen: Sighting) -> Iterator[str]:
        for role in ("supervisor", "rm", "proxy"):
            for process in seen.named(role):
                # A fork of it that is about to become something else is gone at the next look.
                if process.key in self._before:
                    self._starts[role].setdefault(process.key, seen.time)
            # The first start is no restart.
            restarts = sorted(self._starts[role].values())[1:]
            yield from self._over(role, restarts, (), self.bounds.component_budget)
        self._before = frozenset(process.key for process in seen.processes)
        if not seen.named("root"):
            self._starts.clear()
        for index in self.counts.slices:
            free = self.causes.free[index]
            times = self.counts.times(index)
            yield from self._over(f"slice {index}", times, free, self.bounds.slice_budget)

    def _over(
        self, what: str, times: list[float], free: Collection[float], budget: tuple[int, float]
    ) -> Iterator[str]:
        limit, window = budget
        for place, first in enumerate(times):
            # Not quite the window: what is done at equal distances is not seen at such.
            last = first + window - SEEN_LATE_S
            count = sum(first <= time < last for time in times)
            unpaid = sum(first - _FREE_WITHIN_S < time < last for time in free)
            if count > limit + unpaid and (what, place) not in self._told:
                self._told.add((what, place))
                yield (
                    f"{what} has been restarted {count} times within {window:g} s, {unpaid} of "
                    f"them by order, and its budget is {limit}"
                )
