# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""A worker's lease: how long it may go on without a word from its resource manager. Pure."""

import time
from dataclasses import dataclass


def clock_s() -> float:
    """Seconds of a clock that also counts while the process or the whole machine is stopped."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(slots=True)
class Lease:
    """Runs out when it was not renewed for `duration_s`.

    Attributes:
        duration_s: In seconds.
        renewed_s: When the last message was sent that the resource manager answered, or the start.
    """

    duration_s: float
    renewed_s: float

    def renew(self, sent_s: float) -> None:
        """The resource manager answered a message sent then.

        The moment of sending counts: the answer may have waited in a buffer while the process was
        stopped, and says nothing of the time since.
        """
        self.renewed_s = max(self.renewed_s, sent_s)

    def left_s(self, now_s: float) -> float:
        """Seconds until it runs out; 0 or less once it has."""
        return self.renewed_s + self.duration_s - now_s
