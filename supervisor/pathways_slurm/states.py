# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The words for the state of a service, a slice and a scheduler's task."""

from enum import StrEnum


class TaskState(StrEnum):
    """A scheduler's view of one array task. Slurm's words map here through ``task_state``."""

    PENDING = "PENDING"
    CONFIGURING = "CONFIGURING"
    RUNNING = "RUNNING"
    COMPLETING = "COMPLETING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    TIMEOUT = "TIMEOUT"
    PREEMPTED = "PREEMPTED"
    NODE_FAIL = "NODE_FAIL"
    HELD = "HELD"
    UNKNOWN = "UNKNOWN"

    @property
    def ended(self) -> bool:
        """The task will not run again by itself."""
        return self in _ENDED


_ENDED = frozenset(
    {
        TaskState.COMPLETED,
        TaskState.FAILED,
        TaskState.CANCELLED,
        TaskState.TIMEOUT,
        TaskState.PREEMPTED,
        TaskState.NODE_FAIL,
    }
)

# Every job state word of squeue and sacct (Slurm 22.05 to 26.05). A word that is not here is
# UNKNOWN, which no rule takes for an end.
_SLURM_WORDS = {
    "BOOT_FAIL": TaskState.NODE_FAIL,
    "CANCELLED": TaskState.CANCELLED,
    "COMPLETED": TaskState.COMPLETED,
    "COMPLETING": TaskState.COMPLETING,
    "CONFIGURING": TaskState.CONFIGURING,
    "DEADLINE": TaskState.TIMEOUT,
    "FAILED": TaskState.FAILED,
    "NODE_FAIL": TaskState.NODE_FAIL,
    "OUT_OF_MEMORY": TaskState.FAILED,
    "PENDING": TaskState.PENDING,
    "PREEMPTED": TaskState.PREEMPTED,
    "REQUEUED": TaskState.PENDING,
    "REQUEUE_FED": TaskState.PENDING,
    "REQUEUE_HOLD": TaskState.HELD,
    "RESIZING": TaskState.RUNNING,
    "REVOKED": TaskState.CANCELLED,
    "RUNNING": TaskState.RUNNING,
    "SIGNALING": TaskState.RUNNING,
    "SPECIAL_EXIT": TaskState.HELD,
    "STAGE_OUT": TaskState.COMPLETING,
    "STOPPED": TaskState.RUNNING,
    "SUSPENDED": TaskState.RUNNING,
    "TIMEOUT": TaskState.TIMEOUT,
}


def task_state(word: str) -> TaskState:
    """Maps a state word of Slurm ("CANCELLED by 1000", "COMPLETED+") to a TaskState."""
    head = word.strip().split(" ", 1)[0].rstrip("+").upper()
    return _SLURM_WORDS.get(head, TaskState.UNKNOWN)


class SliceState(StrEnum):
    """What a user reads of a slice."""

    PENDING = "PENDING"  # waits for nodes, or for the task to be submitted
    STARTING = "STARTING"  # has its nodes; not every host answers yet
    READY = "READY"  # runs, and every host answers
    UNREACHABLE = "UNREACHABLE"  # was ready; runs, but a host stopped answering
    ENDING = "ENDING"  # its processes are going away, or will by a deadline
    MAINTENANCE = "MAINTENANCE"  # ended, and stays so until a request for its nodes is withdrawn
    FAILED = "FAILED"  # ended, and will not be started again by itself
    CANCELLED = "CANCELLED"  # ended by order of a user
    ENDED = "ENDED"  # ended with the service
    UNKNOWN = "UNKNOWN"  # the scheduler does not answer, or says a word we do not know


class ServicePhase(StrEnum):
    """What a user reads of the whole service."""

    STARTING = "STARTING"  # fewer than MIN_SLICES slices have been ready so far
    READY = "READY"  # cluster.env is published
    DEGRADED = "DEGRADED"  # published before; the proxy, or MIN_SLICES slices, do not answer now
    STOPPING = "STOPPING"
    STOPPED = "STOPPED"
    FAILED = "FAILED"
    UNKNOWN = "UNKNOWN"  # no supervisor runs, or one that has not looked yet
