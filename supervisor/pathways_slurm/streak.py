# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""How long a condition was met at look after look. Pure."""

from dataclasses import dataclass

# One look that finds somebody silent may be a moment's affair, and so may a second one.
_LEAST_LOOKS = 3


@dataclass(frozen=True, slots=True)
class Streak:
    """Looks in a row at which something was so; the empty one if it was not at the last look.

    Attributes:
        since: Unix time of the first one.
        last: Unix time of the last one.
        looks: How many there were.
    """

    since: float = 0.0
    last: float = 0.0
    looks: int = 0

    @property
    def lasted_s(self) -> float:
        """From the first look to the last, in seconds."""
        return self.last - self.since

    def extended(self, now: float, longest_gap_s: float) -> "Streak":
        """With a look at ``now`` (Unix seconds) at which it is so.

        Begins anew if nobody looked for longer than ``longest_gap_s`` seconds, or the clock was set
        back: what was so in between is not known.
        """
        if self.looks and 0.0 <= now - self.last <= longest_gap_s:
            return Streak(self.since, now, self.looks + 1)
        return Streak(now, now, 1)

    def reached(self, limit_s: float) -> bool:
        """It has been so for ``limit_s`` seconds, and not only at a look or two."""
        return self.looks >= _LEAST_LOOKS and self.lasted_s >= limit_s


NOT_ONCE = Streak()
"""It was not so at the last look."""
