# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""A slice that goes after notice: from the first word of it until it is back. Pure."""

import math
from dataclasses import replace

from pathways_slurm.model import Departure, SliceMemory
from pathways_slurm.runtime_files import SliceReport

LEFT_BY_PROGRAMS = "its programs have left it"


def departure_of(
    memory: SliceMemory, report: SliceReport | None, acknowledged: bool, now: float
) -> Departure | None:
    """The slice's last departure, with what was learned of that of its present run.

    Args:
        memory: Of the slice; its incarnation is that of the present run.
        report: What the resource manager says of the slice, if anything.
        acknowledged: Programs no longer use the present run.
        now: Unix time in seconds.
    """
    going = memory.going
    if report is not None and report.incarnation == memory.incarnation:
        # The first notice counts, whoever gave it.
        if going is None and report.notice is not None:
            going = Departure(memory.incarnation, report.notice.reason, report.notice.deadline)
        if report.released:
            going = going or Departure(memory.incarnation, report.reason, now)
            going = replace(going, released=report.reason or "nothing on it is needed any more")
    if going is not None and acknowledged:
        going = replace(going, acknowledged=True)
    return going or memory.departure


def words_while_it_goes(going: Departure, now: float) -> str:
    """Why a slice that still runs is not one to count on."""
    if going.released:
        return f"{going.released}; its processes are ending"
    left_s = max(0, math.ceil(going.deadline - now))
    return f"goes within {left_s} s: {going.reason}"


def words_once_it_went(gone: Departure) -> str:
    """What became of the run."""
    if gone.released:
        return f"went after notice: {gone.released}"
    return f"went after notice ({gone.reason})"
