# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Why a slice has to be started over: what each restart is counted as. Pure.

Only faults are counted. Who is preempted, is given notice, is asked for maintenance or is requeued
by an administrator has not failed; and a slice that was cancelled is not started over at all.
"""

from enum import StrEnum

from pathways_slurm.scheduler.base import Task
from pathways_slurm.states import TaskState


class Cause(StrEnum):
    """What is counted apart. ``meaning`` says it in a sentence's end."""

    meaning: str

    def __new__(cls, value: str, meaning: str) -> "Cause":
        member = str.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member

    CRASH = "crash", "a host was ended by a signal, or exited with a code other than 0"
    EXIT = "exit", "a host exited with code 0, and nobody had asked for that"
    HANG = "hang", "a host was silent for too long"
    LAUNCH = "launch", "the scheduler could not launch it, and held it"
    NODE = "node", "a node failed, or was taken away"
    TIME_LIMIT = "time-limit", "it reached the scheduler's time limit"
    MISSING = "missing", "the scheduler no longer knew of it"


class OnBudget(StrEnum):
    """What follows once a slice's restart budget has run out."""

    SLICE = "slice"  # it stays down; the service goes on while MIN_SLICES can be reached
    SERVICE = "service"  # the service ends
    WAIT = "wait"  # it is tried again once the budget's window allows


USERS_HOLD = "JobHeldUser"
"""Slurm's word for a task that its own user holds back."""

# Slurm's words, where its state alone does not tell.
_NODE_WORDS = ("NodeDown", "SystemFailure")
_LAUNCH_WORDS = ("JobLaunchFailure",)
# The resource manager's word for a host that has sent nothing for a while.
_SILENT = "silent"


def cause_of(task: Task, runtime_words: str) -> Cause:
    """What the end of a task's run, or that it must be ended, is counted as.

    Args:
        task: One that has ended, is held, or runs and does not take part.
        runtime_words: Why its run is over, as the resource manager says; "" if it does not.
    """
    match task.state:
        case TaskState.RUNNING:
            return Cause.HANG
        case TaskState.HELD:
            return Cause.LAUNCH
        case TaskState.NODE_FAIL:
            return Cause.NODE
        case TaskState.TIMEOUT:
            return Cause.TIME_LIMIT
    if any(word in task.reason for word in _NODE_WORDS):
        return Cause.NODE
    if any(word in task.reason for word in _LAUNCH_WORDS):
        return Cause.LAUNCH
    # The hosts that end because another one hangs have not failed themselves.
    if _SILENT in runtime_words:
        return Cause.HANG
    clean = task.exit_code == 0 or task.state is TaskState.COMPLETED
    return Cause.EXIT if clean else Cause.CRASH
