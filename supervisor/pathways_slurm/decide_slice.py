# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What to do about one slice. Pure: no clock, no I/O."""

from dataclasses import dataclass, replace

from pathways_slurm.budget import Budget
from pathways_slurm.events import Reason
from pathways_slurm.model import Action, Note, Release, Requeue, Rules, SliceMemory
from pathways_slurm.scheduler.base import BEGIN_TIME, Task
from pathways_slurm.states import SliceState, TaskState


@dataclass(frozen=True, slots=True)
class SliceDecision:
    """The part of a plan that concerns one slice.

    ``resubmit`` asks for a new array task, because the old one is gone from the scheduler's books.
    """

    memory: SliceMemory
    actions: tuple[Action, ...] = ()
    notes: tuple[Note, ...] = ()
    resubmit: bool = False


@dataclass(frozen=True, slots=True)
class _Verdict:
    state: SliceState
    reason: str
    actions: tuple[Action, ...] = ()
    failures: tuple[float, ...] | None = None
    ordered: int | None = None


def decide_slice(
    rules: Rules,
    index: int,
    task: Task | None,
    memory: SliceMemory,
    silent: tuple[int, ...] | None,
    now: float,
) -> SliceDecision:
    """Decides from what the scheduler says of the slice's task.

    Args:
        rules: Limits.
        index: Slice index.
        task: Its newest task; None if the scheduler answered and does not list one.
        memory: Of this slice.
        silent: Its hosts that accept no connection; None if it was not looked at.
        now: Unix time in seconds.
    """
    if task is None:
        return _decide_missing(rules, index, memory, now)
    if task.incarnation < memory.incarnation:
        # An older task's record: it says nothing about the incarnation that counts.
        return SliceDecision(memory)
    verdict = _judge(rules, index, task, memory, silent, now)
    after = _remember(memory, task, verdict, now)
    return SliceDecision(after, verdict.actions, _transition(index, memory, after, task, now))


def _judge(
    rules: Rules,
    index: int,
    task: Task,
    memory: SliceMemory,
    silent: tuple[int, ...] | None,
    now: float,
) -> _Verdict:
    match task.state:
        case TaskState.PENDING if task.restarts and task.reason == BEGIN_TIME:
            # Slurm makes a requeued task wait, by default for two minutes; its owner may lift that.
            words = "requeued; the time that it has to wait is being lifted"
            return _Verdict(SliceState.PENDING, words, (Release(task.id, index),))
        case TaskState.PENDING:
            return _Verdict(SliceState.PENDING, task.reason or "waits for nodes")
        case TaskState.CONFIGURING:
            return _Verdict(SliceState.PENDING, task.reason or "its nodes are being started")
        case TaskState.HELD:
            return _judge_held(rules, index, task, memory, now)
        case TaskState.RUNNING if silent == ():
            return _Verdict(SliceState.READY, "every host answers")
        case TaskState.RUNNING if memory.was_ready == task.incarnation:
            return _Verdict(SliceState.UNREACHABLE, _silence(task, silent))
        case TaskState.RUNNING:
            return _Verdict(SliceState.STARTING, "not every host answers on its port yet")
        case TaskState.COMPLETING:
            return _Verdict(SliceState.ENDING, task.reason or "its processes are ending")
        case TaskState.CANCELLED:
            return _Verdict(SliceState.CANCELLED, task.reason or "cancelled by a user")
        case TaskState.UNKNOWN:
            return _Verdict(
                SliceState.UNKNOWN, task.reason or "the scheduler reports a state not known here"
            )
        case _:
            return _judge_ended(rules, index, task, memory, now)


def _silence(task: Task, silent: tuple[int, ...] | None) -> str:
    if not silent:
        return "its hosts could not be asked"
    named = [f"{host} ({task.nodes[host].name})" for host in silent]
    if len(named) == 1:
        return f"host {named[0]} has stopped answering on its port"
    return f"hosts {', '.join(named)} have stopped answering on their ports"


def _judge_ended(rules: Rules, index: int, task: Task, memory: SliceMemory, now: float) -> _Verdict:
    requeue = (Requeue(task.id, index),)
    if task.preempted or task.state is TaskState.PREEMPTED:
        return _Verdict(SliceState.PENDING, "preempted; requeued", requeue)
    cause = task.reason or task.state.value
    if memory.ordered == task.incarnation:
        # Ordered and counted at an earlier look; the order may not have got through.
        return _Verdict(SliceState.PENDING, f"{cause}; requeued", requeue)
    return _retry(rules, task, memory, now, cause, "requeued", requeue)


def _judge_held(rules: Rules, index: int, task: Task, memory: SliceMemory, now: float) -> _Verdict:
    release = (Release(task.id, index),)
    cause = f"held by the scheduler: {task.reason or 'no reason given'}"
    if memory.ordered == task.incarnation:
        return _Verdict(SliceState.PENDING, f"{cause}; released", release)
    return _retry(rules, task, memory, now, cause, "released", release)


def _retry(
    rules: Rules,
    task: Task,
    memory: SliceMemory,
    now: float,
    cause: str,
    done: str,
    actions: tuple[Action, ...],
) -> _Verdict:
    budget = Budget(*rules.slice_budget)
    if not budget.left(memory.failures, now):
        spent = budget.describe(memory.failures, now)
        return _Verdict(SliceState.FAILED, f"{cause}; its restart budget has run out ({spent})")
    wait = budget.backoff_left(memory.failures, now)
    if wait > 0:
        return _Verdict(SliceState.PENDING, f"{cause}; backs off before the next try")
    failures = (*budget.recent(memory.failures, now), now)
    return _Verdict(SliceState.PENDING, f"{cause}; {done}", actions, failures, task.incarnation)


def _decide_missing(rules: Rules, index: int, memory: SliceMemory, now: float) -> SliceDecision:
    since = memory.missing_since or now
    if now - since < rules.missing_grace_s:
        return SliceDecision(replace(memory, missing_since=since))
    reason = f"its task was absent from the scheduler's answers for {now - since:.0f} s"
    after = replace(
        memory, state=SliceState.PENDING, since=now, reason=f"{reason}; submitted again"
    )
    note = Note(Reason.SliceLost, f"slice {index} lost: {reason}", f"slice {index}")
    return SliceDecision(replace(after, missing_since=0.0), notes=(note,), resubmit=True)


def _remember(memory: SliceMemory, task: Task, verdict: _Verdict, now: float) -> SliceMemory:
    moved = verdict.state is not memory.state or task.incarnation != memory.incarnation
    ready = verdict.state is SliceState.READY
    return SliceMemory(
        state=verdict.state,
        since=now if moved else memory.since,
        reason=verdict.reason,
        incarnation=task.incarnation,
        was_ready=task.incarnation if ready else memory.was_ready,
        failures=memory.failures if verdict.failures is None else verdict.failures,
        missing_since=0.0,
        ordered=memory.ordered if verdict.ordered is None else verdict.ordered,
    )


_ENTERED = {
    SliceState.PENDING: Reason.SlicePending,
    SliceState.STARTING: Reason.SliceStarting,
    SliceState.READY: Reason.SliceReady,
    SliceState.UNREACHABLE: Reason.SliceUnreachable,
    SliceState.FAILED: Reason.SliceFailed,
    SliceState.CANCELLED: Reason.SliceCancelled,
}


# Not to answer is not to be lost: a host may be slow, or its end not be reported yet.
_MAYBE_UP = (SliceState.READY, SliceState.UNREACHABLE, SliceState.UNKNOWN)


def _transition(
    index: int, before: SliceMemory, after: SliceMemory, task: Task, now: float
) -> tuple[Note, ...]:
    subject = f"slice {index}"
    notes: list[Note] = []
    renewed = after.incarnation != before.incarnation
    was_up = before.state in _MAYBE_UP and before.was_ready == before.incarnation > 0
    if was_up and (renewed or after.state not in _MAYBE_UP):
        cause = task.reason or after.reason
        if renewed and after.state in (SliceState.READY, SliceState.STARTING):
            cause = "it was restarted between two looks"
        notes.append(Note(Reason.SliceLost, f"{subject} lost: {cause}", subject))
    if after.ordered != before.ordered:
        reason = Reason.SliceReleased if task.state is TaskState.HELD else Reason.SliceRequeued
        notes.append(Note(reason, f"{subject}: {after.reason}", subject))
    moved = after.state is not before.state or renewed
    if moved and (entered := _ENTERED.get(after.state)):
        words = f"{subject} {after.state.value.lower()}"
        if after.state is SliceState.READY:
            nodes = ", ".join(node.name for node in task.nodes)
            words += f" on {nodes} (incarnation {after.incarnation})"
            if task.since:
                words += f", {max(0.0, now - task.since):.1f} s after its start"
        else:
            words += f": {after.reason}"
        if not (entered is Reason.SlicePending and after.ordered != before.ordered):
            notes.append(Note(entered, words, subject))
    return tuple(notes)
