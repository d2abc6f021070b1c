# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Whether, and after how long, a command that has ended is started again. Pure."""

from pathways_slurm.foreground import Ended
from pathways_slurm.keeper import signal_name

# As shells have it: the program was not found, or is none. It will not be there a second later.
_NO_PROGRAM = (126, 127)
# A command that ran for less has not got anywhere.
_AT_ONCE_S = 10.0
_LONGEST_PAUSE_S = 30.0


def worth_restarting(ended: Ended) -> bool:
    """Whether the command failed by itself, in a way that another try may mend."""
    return ended.code != 0 and not ended.asked and ended.code not in _NO_PROGRAM


def failures_at_once(before: int, ran_s: float) -> int:
    """How many runs in a row have failed at once, with one that ran for ``ran_s`` seconds."""
    return before + 1 if ran_s < _AT_ONCE_S else 0


def pause_s(failures: int) -> float:
    """Seconds to wait after so many runs in a row that failed at once: 0, 1, 2, 4 ... 30."""
    return min(2.0 ** (failures - 1), _LONGEST_PAUSE_S) if failures else 0.0


def describe(ended: Ended) -> str:
    """How the command ended, for people."""
    if ended.signal is not None:
        return f"command was ended by signal {ended.signal} ({signal_name(ended.signal)})"
    return f"command exited with {ended.code}"
