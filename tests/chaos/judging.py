# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What the rules have in common: bounds, causes, violations, and how long something has been so.

Standard library only; a test enforces it.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from tests.chaos.sightings import Sighting

# How much later than it happened something may be seen.
SEEN_LATE_S = 2.0


@dataclass(frozen=True)
class Bounds:
    """How long things may take, in seconds, and how often they may happen.

    Attributes:
        old_incarnation_s: From the start of a newer incarnation to the end of an older one.
        proxy_s: From a proxy's end to the end of its announcement.
        end_s: From the service's end to that of all its parts.
        ready_s: From the end of a slice's workers until it is no longer shown as ready.
        blind_s: After the scheduler's last answer, what it had said may still be acted on.
        lease_s: Without a resource manager for so long, workers end themselves.
        component_budget: Restarts of RM, proxy and supervisor each, and within what time.
        slice_budget: The same of a slice's restarts after failures.
    """

    old_incarnation_s: float = 30.0
    proxy_s: float = 60.0
    end_s: float = 60.0
    ready_s: float = 45.0
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


def said(seen: Sighting, reasons: Collection[str]) -> Iterator[tuple[float, str]]:
    """Time and text of the new lines of events.jsonl with one of these reasons."""
    for line in seen.lines:
        fields = line.fields or {}
        if fields.get("reason") in reasons:
            yield float(fields.get("time", 0.0)), line.text
