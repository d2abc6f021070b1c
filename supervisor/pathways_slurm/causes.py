# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Why a slice has to be started over: what each restart is counted as. Pure.

Only faults are counted. Who is preempted, is given notice, is asked for maintenance or is requeued
by an administrator has not failed; and a slice that was cancelled is not started over at all.
"""

from enum import StrEnum

from pathways_slurm.runtime_files import EndKind, FirstEnd
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


HOLDS = {"JobHeldUser": "a user", "JobHeldAdmin": "an administrator"}
"""Slurm's words for a task that somebody holds back, and who that is."""

# Slurm's words for a task that was requeued to be held: by an order, or for its exit code where a
# cluster has it so.
_HELD_BY_ORDER = "job requeued in held state"
_HELD_FOR_EXIT = "special exit"

# Slurm's words, where its state alone does not tell.
_NODE_WORDS = ("NodeDown", "SystemFailure")
_LAUNCH_WORDS = ("JobLaunchFailure",)


def is_held_by_order(task: Task) -> bool:
    """Somebody had it requeued and held at once (scontrol requeuehold): nothing has failed."""
    return _HELD_BY_ORDER in task.reason


def cause_of(task: Task, end: FirstEnd | None) -> Cause:
    """What the end of a task's run, or that it must be ended, is counted as.

    Args:
        task: One that has ended, is held, or runs and does not take part.
        end: The host that ended its run, as the resource manager says; None if it does not.
    """
    match task.state:
        case TaskState.RUNNING:
            return Cause.HANG
        case TaskState.HELD:
            return Cause.CRASH if _HELD_FOR_EXIT in task.reason else Cause.LAUNCH
        case TaskState.NODE_FAIL:
            return Cause.NODE
        case TaskState.TIMEOUT:
            return Cause.TIME_LIMIT
    if any(word in task.reason for word in _NODE_WORDS):
        return Cause.NODE
    if any(word in task.reason for word in _LAUNCH_WORDS):
        return Cause.LAUNCH
    # Hosts that end because another one has ended, or hangs, have not failed themselves; the
    # scheduler may know of no other.
    match end:
        case FirstEnd(kind=EndKind.SILENT):
            return Cause.HANG
        case FirstEnd(kind=EndKind.LEFT):
            return Cause.EXIT
    clean = task.exit_code == 0 or task.state is TaskState.COMPLETED
    return Cause.EXIT if clean else Cause.CRASH
