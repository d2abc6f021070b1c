# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Retry budgets: so many retries of one cause within a sliding window of time. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

# A first retry is immediate; what keeps failing waits twice as long each time, up to a minute.
_FIRST_BACKOFF_S = 1.0
_LONGEST_BACKOFF_S = 60.0


@dataclass(frozen=True, slots=True)
class Budget:
    """At most ``limit`` retries within any ``window_s`` seconds."""

    limit: int
    window_s: float

    def recent(self, spent: Sequence[float], now: float) -> tuple[float, ...]:
        """The times in ``spent`` (Unix seconds) that still count at ``now``.

        Times in the future count as well: a clock that was set back must not refill a budget.
        """
        return tuple(t for t in spent if t > now - self.window_s)

    def left(self, spent: Sequence[float], now: float) -> int:
        """How many retries remain at ``now``."""
        return max(0, self.limit - len(self.recent(spent, now)))

    def backoff_left(self, spent: Sequence[float], now: float) -> float:
        """Seconds to wait before the next retry: 0 for the first one, then doubling."""
        recent = self.recent(spent, now)
        if not recent:
            return 0.0
        pause = min(_LONGEST_BACKOFF_S, _FIRST_BACKOFF_S * 2.0 ** (len(recent) - 1))
        # Bounded by the pause itself, so that a clock set back cannot stretch the wait.
        return min(pause, max(0.0, recent[-1] + pause - now))

    def describe(self, spent: Sequence[float], now: float) -> str:
        """For a human: ``3 of 5 used in the last 600 s``."""
        used = len(self.recent(spent, now))
        return f"{used} of {self.limit} used in the last {self.window_s:g} s"
