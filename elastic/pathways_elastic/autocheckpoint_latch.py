# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The decisions of an autocheckpoint: when a step is saved, and what follows. Pure.

::

    QUIET ──asked──▶ ASKED ──a step is saved──▶ SAVING ──committed──▶ QUIET, or ENDING
                       ▲                          │
                       └────────── failed ────────┘        time over: QUIET, or ENDING
"""

import math
import os
from dataclasses import dataclass, replace
from enum import Enum, auto

EXIT_SAVED = os.EX_TEMPFAIL
"""Status of a program that ended after its autocheckpoint, and goes on when started again."""
EXIT_NOT_SAVED = os.EX_IOERR
"""Status of one that was to end so, and had no autocheckpoint in time."""

END_WITHIN_S = 60.0
"""What a program that ends may take for its own cleaning up, after the autocheckpoint."""


class Phase(Enum):
    """Where an autocheckpoint is."""

    QUIET = auto()
    """Nobody has asked for one."""
    ASKED = auto()
    """The next step is to be saved."""
    SAVING = auto()
    """A step is being saved."""
    ENDING = auto()
    """It is over, and so is the program."""


@dataclass(frozen=True, slots=True)
class Latch:
    """Keeps a request until a step is committed, or its time is over.

    Attributes:
        timeout_s: From the first request to the end of the attempt.
        exit_after: Whether the program ends with the attempt.
        phase: Where it is.
        reasons: Who asked, in order; several may, for one and the same attempt.
        deadline: Monotonic time at which the attempt, or the ending, takes too long.
        step: That is being saved, or was saved last at a request.
        status: With which the program ends.
    """

    timeout_s: float
    exit_after: bool
    phase: Phase = Phase.QUIET
    reasons: tuple[str, ...] = ()
    deadline: float = math.inf
    step: int | None = None
    status: int | None = None

    def asked(self, reason: str, now: float) -> "Latch":
        """Somebody asks. Who asks again, before the attempt is over, neither hurries nor delays it.

        Signals come twice: Slurm sends them to every process of a step, and some of these pass them
        on; it also sends them at the beginning and at the end of the grace time.
        """
        if self.phase is Phase.QUIET:
            return replace(
                self,
                phase=Phase.ASKED,
                reasons=(reason,),
                deadline=now + self.timeout_s,
                step=None,
            )
        return replace(self, reasons=(*self.reasons, reason))

    def saves(self, step: int) -> bool:
        """Whether this step is the one: any that comes after the request, and then it alone."""
        return self.phase is Phase.ASKED or (self.step is not None and step == self.step)

    def keeps(self, step: int) -> bool:
        """Whether this step was saved for the last request, or is just being."""
        return self.step == step

    def saving(self, step: int) -> "Latch":
        """The step's save begins. Without a request, it is one of the program's own."""
        if self.phase is not Phase.ASKED:
            return self
        return replace(self, phase=Phase.SAVING, step=step)

    def failed(self) -> "Latch":
        """The save did: the next step is tried, as long as there is time."""
        if self.phase is not Phase.SAVING:
            return self
        return replace(self, phase=Phase.ASKED, step=None)

    def committed(self, now: float) -> "Latch":
        """The step can be restored."""
        if self.phase is not Phase.SAVING:
            return self
        return self._over(EXIT_SAVED, now)

    def overdue(self, now: float) -> bool:
        """Whether the attempt, or the ending, has had its time."""
        return self.phase is not Phase.QUIET and now >= self.deadline

    def given_up(self, now: float) -> "Latch":
        """The attempt is over if it has had its time."""
        if self.phase is Phase.ENDING or not self.overdue(now):
            return self
        return replace(self._over(EXIT_NOT_SAVED, now), step=None)

    def _over(self, status: int, now: float) -> "Latch":
        if not self.exit_after:
            return replace(self, phase=Phase.QUIET, reasons=(), deadline=math.inf)
        return replace(self, phase=Phase.ENDING, deadline=now + END_WITHIN_S, status=status)
