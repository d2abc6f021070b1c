# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What ended a run of a slice: Slurm's own account of it in the slice's batch.log. Pure.

Slurm keeps one exit code of a task, the greatest of its hosts'. Hosts that srun ends because
another has ended count too, so that code may be that of a bystander. And squeue does not tell why
a run was ended that is to run again.
"""

import re
import signal
from dataclasses import dataclass

# As scripts/run_worker_slice.sh writes it at the start of each run.
_RUN = re.compile(r"^=== slice [0-9]+ incarnation ([0-9]+): .*===$", re.MULTILINE)
_END = re.compile(
    r"^srun: (?:error: (?P<node>\S+): tasks? (?P<failed>[0-9]+)\S*: (?P<how>.+)"
    r"|StepId=\S+ tasks? (?P<exited>[0-9]+)\S*: exited)$",
    re.MULTILINE,
)
_ORDERED = re.compile(
    r"^slurmstepd\S*: error: \*\*\* JOB [0-9]+ ON \S+ CANCELLED AT \S+ "
    r"DUE TO ([A-Z ]+?)(?:,.*)? \*\*\*$",
    re.MULTILINE,
)
_WHY = {
    "JOB REQUEUE": "requeued by order (scontrol requeue)",
    "NODE FAILURE": "a node of it failed",
    "PREEMPTION": "preempted",
    "TIME LIMIT": "its time limit was reached",
}
_EXIT_CODE = re.compile(r"Exited with exit code ([0-9]+)")
_SIGNALS = {words: number.value for number in signal.Signals if (words := signal.strsignal(number))}


@dataclass(frozen=True, slots=True)
class HostEnd:
    """How the first host to end did; one of ``code`` and ``signal`` is None."""

    host: int
    code: int | None
    signal: int | None

    def __str__(self) -> str:
        if self.signal is None:
            return f"host {self.host} exited with code {self.code}"
        return f"host {self.host} was ended by signal {self.signal}"


def first_end(log: str, incarnation: int) -> HostEnd | None:
    """The first end in this incarnation's part of a batch.log, None if it tells of none."""
    match = _END.search(_run(log, incarnation))
    if match is None:
        return None
    if match["exited"] is not None:
        return HostEnd(int(match["exited"]), 0, None)
    host, how = int(match["failed"]), match["how"]
    if code := _EXIT_CODE.fullmatch(how):
        return HostEnd(host, int(code[1]), None)
    number = _SIGNALS.get(how.removesuffix(" (core dumped)"))
    return None if number is None else HostEnd(host, None, number)


def ended_for(log: str, incarnation: int) -> str:
    """Why Slurm itself ended this incarnation, for people; "" if its batch.log does not say."""
    match = _ORDERED.search(_run(log, incarnation))
    return "" if match is None else _WHY.get(match[1], f"ended by Slurm: {match[1].lower()}")


def _run(log: str, incarnation: int) -> str:
    """An incarnation's part of a batch.log, "" if there is none."""
    start = next((m.end() for m in _RUN.finditer(log) if int(m[1]) == incarnation), None)
    if start is None:
        return ""
    next_run = _RUN.search(log, start)
    return log[start : next_run.start() if next_run else len(log)]
