# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What is seen of one slice at one look. Pure."""

from dataclasses import dataclass

from pathways_slurm.maintenance import Request
from pathways_slurm.runtime_files import FirstEnd, SliceReport
from pathways_slurm.scheduler.base import Task


@dataclass(frozen=True, slots=True)
class SliceView:
    """What is seen of one slice.

    Attributes:
        task: Its newest task; None if the scheduler answered and does not list one.
        silent: Its hosts that do not answer; None if it was not looked at.
        report: What the resource manager says of it, if anything.
        settled: Absence from that report means something.
        acknowledged: Incarnations that programs no longer use.
        maintenance: The request that its nodes be given back, if there is one.
    """

    task: Task | None
    silent: tuple[int, ...] | None = None
    report: SliceReport | None = None
    settled: bool = False
    acknowledged: frozenset[int] = frozenset()
    maintenance: Request | None = None

    def is_over(self, task: Task) -> bool:
        """Whether the run is, by the word of the resource manager, if it was ever complete."""
        report = self.report
        if report is None or not self.settled or report.alive:
            return False
        return report.incarnation >= task.incarnation

    def leftover(self, task: Task) -> int:
        """The earlier run whose hosts still take part, though the scheduler has begun another; 0
        if there is none."""
        report = self.report
        if report is None or not self.settled or not report.alive:
            return 0
        return report.incarnation if report.incarnation < task.incarnation else 0

    def first_end(self, task: Task) -> FirstEnd | None:
        """The host that ended the run, if the resource manager knows one."""
        report = self.report
        if report is None or report.incarnation != task.incarnation or not self.is_over(task):
            return None
        return report.end
