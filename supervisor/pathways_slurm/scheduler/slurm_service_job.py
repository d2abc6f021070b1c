# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The job that the service itself is, as Slurm sees it. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from pathways_slurm.scheduler.slurm_parse import Row
from pathways_slurm.states import TaskState

# A job in any other state has ended here, or waits to be started again.
_HERE = (
    TaskState.RUNNING,
    TaskState.CONFIGURING,
    # Slurm is about to end it, and tells its processes by a signal where it reaches them.
    TaskState.COMPLETING,
    TaskState.UNKNOWN,
)


@dataclass(frozen=True, slots=True)
class ServiceJob:
    """One run of a job.

    Attributes:
        id: As in SLURM_JOB_ID.
        restarts: As in SLURM_RESTART_COUNT.
    """

    id: str
    restarts: int

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Self | None:
        """The job that a process with this environment belongs to, if any."""
        job = environ.get("SLURM_JOB_ID", "")
        restarts = environ.get("SLURM_RESTART_COUNT") or "0"
        return cls(job, int(restarts)) if job.isdecimal() and restarts.isdecimal() else None

    def eviction(self, rows: Sequence[Row]) -> str:
        """Why this run of the job is over for Slurm, given all jobs of the user; "" if it is not.

        When a node's slurmd dies, Slurm requeues the jobs of the node while their processes live
        on. A job that is not listed says nothing: a slurmctld that was killed may have lost it.
        """
        row = next((row for row in rows if row.id == self.id), None)
        if row is None:
            return ""
        if row.restarts != self.restarts:
            return f"Slurm has requeued the service's job {self.id}"
        if row.state not in _HERE:
            return f"Slurm says that the service's job {self.id} is {row.state.value}"
        return ""
