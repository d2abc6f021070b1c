# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Whether, and after how long, a command that has ended is started again. Pure."""

import os
from dataclasses import dataclass

from pathways_slurm.foreground import Ended
from pathways_slurm.keeper import signal_name

# As shells have it: the program was not found, or is none. It will not be there a second later.
_NO_PROGRAM = (126, 127)
# A command that ran for less has not got anywhere.
_AT_ONCE_S = 10.0
_LONGEST_PAUSE_S = 30.0
# One that ran for as long has, and what failed before is past. More than programs wait for slices
# before they give up, which is 1 h with MaxText.
_LONG_S = 7200.0


def worth_restarting(ended: Ended) -> bool:
    """Whether the command failed by itself, in a way that another try may mend."""
    return ended.code != 0 and not ended.asked and ended.code not in _NO_PROGRAM


def failed(ended: Ended, ran_s: float) -> bool:
    """Whether a run of ``ran_s`` seconds that is worth another counts as a failure.

    By 75 (EX_TEMPFAIL) a command says that it has saved its state and is to be started again, which
    is none. One that says so at once has got nowhere, and would go on so for ever.
    """
    return ended.code != os.EX_TEMPFAIL or ran_s < _AT_ONCE_S


@dataclass(frozen=True, slots=True)
class Failures:
    """What is to be remembered of the runs so far.

    Attributes:
        counted: Failures since the last run that was a long one.
        at_once: The last runs in a row that were over at once.
    """

    counted: int = 0
    at_once: int = 0

    def after(self, ended: Ended, ran_s: float) -> "Failures":
        """With one more run, that is worth another and took ``ran_s`` seconds."""
        before = self.counted if ran_s < _LONG_S else 0
        at_once = self.at_once + 1 if ran_s < _AT_ONCE_S else 0
        return Failures(before + failed(ended, ran_s), at_once)


def pause_s(at_once: int) -> float:
    """Seconds to wait after so many runs in a row that were over at once: 0, 1, 2, 4 ... 30."""
    # The exponent has a limit of its own: there is no float of 1024 doublings.
    return min(2.0 ** min(at_once - 1, 10), _LONGEST_PAUSE_S) if at_once else 0.0


def describe(ended: Ended) -> str:
    """How the command ended, for people."""
    if ended.signal is not None:
        return f"command was ended by signal {ended.signal} ({signal_name(ended.signal)})"
    return f"command exited with {ended.code}"
