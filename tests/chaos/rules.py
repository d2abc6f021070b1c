# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The seven invariants of docs/architecture.md as rules over what was sighted. Pure.

Standard library only; a test enforces it. A rule looks at one sighting after the other and says
what is wrong. What the injector did is told to :class:`Causes`, so that a restart which nothing
explains is seen as one.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from tests.chaos.sightings import Endpoint, Sighting, Task, Worker


@dataclass(frozen=True)
class Bounds:
    """How long things may take, in seconds, and how often they may happen.

    Attributes:
        old_incarnation_s: From the start of a newer incarnation to the end of an older one.
        proxy_s: From a proxy's end to the end of its announcement.
        end_s: From the service's end to that of all its parts.
        blind_s: After the scheduler's last answer, what it had said may still be acted on.
        lease_s: Without a resource manager for so long, workers end themselves.
        component_budget: Restarts of RM, proxy and supervisor each, and within what time.
        slice_budget: The same of a slice's restarts after failures.
    """

    old_incarnation_s: float = 30.0
    proxy_s: float = 60.0
    end_s: float = 60.0
    blind_s: float = 5.0
    lease_s: float = 15.0
    component_budget: tuple[int, float] = (5, 600.0)
    slice_budget: tuple[int, float] = (10, 600.0)


@dataclass(frozen=True)
class Violation:
    """An invariant that did not hold."""

    invariant: int
    time: float
    words: str

    def __str__(self) -> str:
        return f"invariant {self.invariant}: {self.words}"


class Rule(Protocol):
    """One way in which an invariant can be broken."""

    def look(self, seen: Sighting) -> Iterator[str]:
        """Says what is wrong now."""

    @property
    def invariant(self) -> int: ...


@dataclass
class Causes:
    """What was done to slices, so that restarts have a cause.

    Attributes:
        restarts: Slice → how many restarts are explained.
        free: Slice → times of those that Slurm or an administrator ordered: they cost no budget.
        cancelled: Slices that were cancelled by order.
        power_cut: All on the CPU node was ended at once, and no service was started since.
    """

    restarts: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    free: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    cancelled: set[int] = field(default_factory=set)
    power_cut: bool = False

    def expect(self, index: int, restarts: int, now: float, *, free: bool = False) -> None:
        """From ``now`` on, so many more restarts of a slice have a cause."""
        self.restarts[index] += restarts
        if free:
            self.free[index] += [now] * restarts


class Since:
    """For how long something has been so without a break."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._told = False

    def over(self, holds: bool, now: float, limit_s: float) -> bool:
        """True once, when ``holds`` has been true for longer than ``limit_s``."""
        if not holds:
            self._began, self._told = None, False
            return False
        self._began = now if self._began is None else self._began
        late = now - self._began > limit_s and not self._told
        self._told = self._told or late
        return late

    def pause(self, seconds: float) -> None:
        """The last ``seconds`` do not count."""
        if self._began is not None:
            self._began += seconds


@dataclass
class OneIncarnation:
    """An incarnation that was replaced is gone within a bounded time."""

    bounds: Bounds
    invariant: int = 1
    _old: dict[tuple[int, int], Since] = field(default_factory=lambda: defaultdict(Since))

    def look(self, seen: Sighting) -> Iterator[str]:
        newest: dict[int, int] = defaultdict(int)
        for worker in seen.workers:
            if worker.connected and not worker.stopped:
                newest[worker.slice] = max(newest[worker.slice], worker.incarnation)
        for worker in seen.workers:
            # A stopped process takes no part; its time begins when it is continued.
            replaced = worker.incarnation < newest[worker.slice] and not worker.stopped
            if self._old[worker.process.key].over(
                replaced, seen.time, self.bounds.old_incarnation_s
            ):
                yield self._words(worker, newest[worker.slice])
        for key in self._old.keys() - {worker.process.key for worker in seen.workers}:
            del self._old[key]

    def _words(self, worker: Worker, newest: int) -> str:
        return (
            f"incarnation {newest} of slice {worker.slice} takes part, and after "
            f"{self.bounds.old_incarnation_s:g} s an older one still lives: {worker}"
        )


@dataclass
class Discovery:
    """cluster.env names a proxy that answers."""

    bounds: Bounds
    causes: Causes
    invariant: int = 2
    _silent: Since = field(default_factory=Since)

    def look(self, seen: Sighting) -> Iterator[str]:
        if self.causes.power_cut and seen.named("supervisor"):
            # From now on there is somebody again.
            self.causes.power_cut = False
        wrong = seen.published is not None and not seen.answers and not self.causes.power_cut
        if self._silent.over(wrong, seen.time, self.bounds.proxy_s):
            yield (
                f"cluster.env names {_named(seen.published)}, which has not answered for "
                f"{self.bounds.proxy_s:g} s"
            )


@dataclass
class NothingLeft:
    """When root and supervisor have ended, however they did, so does everything else."""

    bounds: Bounds
    invariant: int = 3
    _parts: Since = field(default_factory=Since)
    _time: float = 0.0

    def look(self, seen: Sighting) -> Iterator[str]:
        headless = not seen.named("root") and not seen.named("supervisor")
        tasks = [task for task in seen.tasks or () if task.live]
        if seen.tasks is None:
            # Slurm can't end anything meanwhile.
            self._parts.pause(seen.time - self._time)
        self._time = seen.time
        left = headless and bool(seen.processes or tasks)
        if self._parts.over(left, seen.time, self.bounds.end_s):
            what = [f"pid {p.pid} ({' '.join(p.argv)[:120]})" for p in seen.processes]
            what += [f"task {task.array}_{task.index} ({task.state})" for task in tasks]
            yield f"{self.bounds.end_s:g} s after the service's end there is {'; '.join(what)}"


@dataclass
class WithdrawnAtTheEnd:
    """No cluster.env outlives its service, unless nobody was left who could withdraw it."""

    bounds: Bounds
    causes: Causes
    invariant: int = 2
    _headless: Since = field(default_factory=Since)

    def look(self, seen: Sighting) -> Iterator[str]:
        headless = not seen.named("root") and not seen.named("supervisor")
        there = seen.published is not None and not self.causes.power_cut
        if self._headless.over(headless and there, seen.time, self.bounds.end_s):
            yield (
                f"{self.bounds.end_s:g} s after the service's end cluster.env is still there and "
                f"names {_named(seen.published)}"
            )


# How much later than it happened something may be seen.
_SEEN_LATE_S = 2.0
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
        for at, text in _said(seen, _CONCLUSIONS):
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
    counts: "Restarts"
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
        for _, text in _said(seen, {"SliceLost"}):
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
            if self._gone[index].over(wrong, seen.time, _SEEN_LATE_S):
                yield f"slice {index} was cancelled, and nobody has ordered that"


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
class OneTask:
    """At most one live task per slice index."""

    invariant: int = 5
    _before: dict[int, frozenset[str]] = field(default_factory=dict)
    _told: set[int] = field(default_factory=set)

    def look(self, seen: Sighting) -> Iterator[str]:
        if seen.tasks is None:
            return
        live: dict[int, list[Task]] = defaultdict(list)
        for task in seen.tasks:
            if task.live:
                live[task.index].append(task)
        now = {i: frozenset(t.array for t in tasks) for i, tasks in live.items()}
        for index, tasks in live.items():
            # Twice in a row: a row of squeue and the next are not of the very same moment.
            arrays = now[index] & self._before.get(index, frozenset())
            if len(arrays) > 1 and index not in self._told:
                self._told.add(index)
                listed = ", ".join(f"{t.array}_{t.index} {t.state} of {t.name}" for t in tasks)
                yield f"slice {index} has {len(tasks)} live tasks: {listed}"
        self._before = now


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
            last = first + window - _SEEN_LATE_S
            count = sum(first <= time < last for time in times)
            unpaid = sum(first - _FREE_WITHIN_S < time < last for time in free)
            if count > limit + unpaid and (what, place) not in self._told:
                self._told.add((what, place))
                yield (
                    f"{what} has been restarted {count} times within {window:g} s, {unpaid} of "
                    f"them by order, and its budget is {limit}"
                )


_NAMED_BUDGET = re.compile(
    r"\d+ of \d+ used in the last [\d.e+]+ s|PATHWAYS_[A-Z_]+=|MIN_SLICES=\d+"
)


@dataclass
class ExhaustionIsNamed:
    """Who gives up says which budget has run out."""

    invariant: int = 6
    _told: set[str] = field(default_factory=set)

    def look(self, seen: Sighting) -> Iterator[str]:
        for line in seen.lines:
            fields = line.fields or {}
            message = str(fields.get("message", ""))
            if fields.get("reason") == "BudgetExhausted" and not _NAMED_BUDGET.search(message):
                yield f"a budget has run out, but which one is not said: {line.text}"
        for one in _slices(seen):
            reason = str(one.get("reason", ""))
            if one.get("state") == "FAILED" and not _NAMED_BUDGET.search(reason):
                words = f"slice {one.get('index')} is FAILED, and no budget is named: {reason!r}"
                if words not in self._told:
                    self._told.add(words)
                    yield words


@dataclass
class EveryDecisionHasAReason:
    """Each line of events.jsonl has a known word and a sentence, each slice that waits a reason."""

    known: frozenset[str]
    invariant: int = 7
    _told: set[str] = field(default_factory=set)

    def look(self, seen: Sighting) -> Iterator[str]:
        for line in seen.lines:
            if fault := self._fault(line.fields):
                yield f"events.jsonl: {fault}: {line.text}"
        for one in _slices(seen):
            if one.get("state") != "READY" and not str(one.get("reason") or "").strip():
                words = f"slice {one.get('index')} is {one.get('state')} without a reason"
                if words not in self._told:
                    self._told.add(words)
                    yield words

    def _fault(self, fields: Mapping[str, Any] | None) -> str:
        if fields is None:
            return "a line is no JSON object"
        if fields.get("reason") not in self.known:
            return f"the reason {fields.get('reason')!r} is not known"
        message = fields.get("message")
        if not isinstance(message, str) or len(message.split()) < 2 or "\n" in message:
            return f"the message {message!r} is no sentence"
        if not isinstance(fields.get("time"), int | float) or not fields.get("subject"):
            return "time or subject is missing"
        return ""


def _said(seen: Sighting, reasons: Collection[str]) -> Iterator[tuple[float, str]]:
    """Time and text of the new lines of events.jsonl with one of these reasons."""
    for line in seen.lines:
        fields = line.fields or {}
        if fields.get("reason") in reasons:
            yield float(fields.get("time", 0.0)), line.text


def _slices(seen: Sighting) -> list[Mapping[str, Any]]:
    found = seen.status.get("slices")
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _named(endpoint: Endpoint | None) -> str:
    return f"{endpoint[0]}:{endpoint[1]}" if endpoint and endpoint[1] else "no proxy"


def all_rules(bounds: Bounds, causes: Causes, known_reasons: frozenset[str]) -> list[Rule]:
    """Every rule, in the order in which they must look."""
    counts = Restarts()
    return [
        counts,
        OneIncarnation(bounds),
        Discovery(bounds, causes),
        NothingLeft(bounds),
        WithdrawnAtTheEnd(bounds, causes),
        NoConclusionWhileBlind(bounds),
        EveryRestartHasACause(causes, bounds, counts),
        OneTask(),
        WithinBudget(bounds, causes, counts),
        ExhaustionIsNamed(),
        EveryDecisionHasAReason(known_reasons),
    ]
