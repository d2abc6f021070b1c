# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The seven invariants of docs/architecture.md as rules over what was sighted. Pure.

Standard library only; a test enforces it. A rule looks at one sighting after the other and says
what is wrong. What the injector did is told to ``Causes``, so that a restart which nothing explains
is seen as one.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.judging import Bounds, Causes, Rule, Since
from tests.chaos.restarts import (
    EveryRestartHasACause,
    NoConclusionWhileBlind,
    Restarts,
    WithinBudget,
)
from tests.chaos.sightings import Endpoint, Sighting, Task, Worker


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


@dataclass
class ReadyMeansRunning:
    """A slice that is shown as ready has workers. No invariant by number: its number is 0."""

    bounds: Bounds
    invariant: int = 0
    _bare: dict[int, Since] = field(default_factory=lambda: defaultdict(Since))

    def look(self, seen: Sighting) -> Iterator[str]:
        running = {w.slice for w in seen.workers if w.connected and not w.stopped}
        # Whoever can't look may show what was last known.
        looks = seen.tasks is not None and any(
            p.state not in "Tt" for p in seen.named("supervisor")
        )
        for one in _slices(seen):
            index = int(one.get("index", -1))
            bare = looks and one.get("state") == "READY" and index not in running
            if self._bare[index].over(bare, seen.time, self.bounds.ready_s):
                yield (
                    f"slice {index} has been shown as READY for {self.bounds.ready_s:g} s without "
                    "any worker that lives and is connected"
                )


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
        ReadyMeansRunning(bounds),
        OneTask(),
        WithinBudget(bounds, causes, counts),
        ExhaustionIsNamed(),
        EveryDecisionHasAReason(known_reasons),
    ]
