# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What to do about one slice. Pure: no clock, no I/O."""

from dataclasses import dataclass, replace

from pathways_slurm import slice_words
from pathways_slurm.causes import HOLDS, Cause, cause_of, is_held_by_order
from pathways_slurm.decide_departure import (
    departure_of,
    words_once_it_went,
    words_while_it_goes,
)
from pathways_slurm.decide_maintenance import give_back, remember_request, tell
from pathways_slurm.decide_retry import Retry, Verdict, retry
from pathways_slurm.model import REPORT_S, Rules, SliceMemory
from pathways_slurm.plan import Action, Cancel, Note, Release, Requeue
from pathways_slurm.scheduler.base import BEGIN_TIME, Task
from pathways_slurm.slice_notes import notes_of, notes_of_absence
from pathways_slurm.slice_view import SliceView
from pathways_slurm.states import SliceState, TaskState
from pathways_slurm.streak import NOT_ONCE

# A run that the resource manager says is over ends by itself, sooner than this, or hangs.
_OVER_S = 5.0

_DOWN_FOR_GOOD = (SliceState.FAILED, SliceState.CANCELLED)


@dataclass(frozen=True, slots=True)
class SliceDecision:
    """The part of a plan that concerns one slice.

    ``resubmit`` asks for a new array task, because the old one is gone from the scheduler's books.
    """

    memory: SliceMemory
    actions: tuple[Action, ...] = ()
    notes: tuple[Note, ...] = ()
    resubmit: bool = False


def decide_slice(
    rules: Rules, index: int, view: SliceView, memory: SliceMemory, now: float
) -> SliceDecision:
    """Decides about one slice.

    Args:
        rules: Limits.
        index: Of the slice.
        view: What is seen of it.
        memory: Of it.
        now: Unix time in seconds.
    """
    task = view.task
    if task is None or task.incarnation < memory.incarnation:
        # An older run's record says nothing about the one that counts, which is missing: a
        # scheduler that was killed can have forgotten a task, or that it was started again.
        return _decide_missing(rules, index, view, memory, now)
    known = _learn(rules, view, task, memory, now)
    known, orders = tell(rules, index, task, known, now)
    verdict = _judge(rules, index, view, task, known, now)
    after = _remember(memory, known, verdict, now)
    cause = slice_words.cause_of_the_end(view, task) or after.reason
    notes = notes_of(index, memory, known, after, task, cause, now)
    return SliceDecision(after, (*orders, *verdict.actions), notes)


def _learn(
    rules: Rules, view: SliceView, task: Task, memory: SliceMemory, now: float
) -> SliceMemory:
    """The memory with what is seen, before anything is concluded from it."""
    present = replace(memory, incarnation=task.incarnation, missing_since=0.0)
    if task.incarnation != memory.incarnation:
        present = replace(present, doubt=NOT_ONCE, back_since=0.0)
    acknowledged = task.incarnation in view.acknowledged
    departure = departure_of(present, view.report, acknowledged, now)
    if _failed_to_start(task, memory) and departure and departure.incarnation == task.incarnation:
        # Its other hosts got notice because one had failed, and nothing was on it.
        departure = None
    doubted = memory.was_ready == task.incarnation and _is_doubtful(view, task)
    doubt = present.doubt.extended(now, rules.longest_gap_s) if doubted else NOT_ONCE
    present = replace(present, departure=departure, doubt=doubt)
    return remember_request(present, view.maintenance)


def _failed_to_start(task: Task, memory: SliceMemory) -> bool:
    """It ended by itself, and had not been ready."""
    by_itself = task.state is TaskState.FAILED and not task.preempted
    return by_itself and memory.was_ready != task.incarnation


def _is_doubtful(view: SliceView, task: Task) -> bool:
    """Scheduler, hosts and resource manager do not agree on what becomes of it."""
    if task.state is TaskState.RUNNING:
        return bool(view.silent) or view.is_over(task)
    report = view.report
    if report is None or report.incarnation != task.incarnation:
        return False
    return (task.state.ended or task.state is TaskState.COMPLETING) and report.alive


def _judge(
    rules: Rules, index: int, view: SliceView, task: Task, memory: SliceMemory, now: float
) -> Verdict:
    match task.state:
        case TaskState.PENDING if task.restarts and task.reason == BEGIN_TIME:
            # Slurm makes a requeued task wait, by default for two minutes; its owner may lift that.
            words = slice_words.of_a_requeue(task, memory)
            words += "; the time that it has to wait is being lifted"
            return Verdict(SliceState.PENDING, words, (Release(task.id, index),))
        case TaskState.PENDING | TaskState.CONFIGURING:
            return Verdict(SliceState.PENDING, slice_words.while_pending(task, memory))
        case TaskState.HELD:
            return _judge_held(rules, index, task, memory, now)
        case TaskState.RUNNING:
            return _judge_running(rules, index, view, task, memory, now)
        case TaskState.COMPLETING:
            words = slice_words.cause_of_the_end(view, task) or slice_words.while_it_ends(task)
            return Verdict(
                SliceState.ENDING,
                words_while_it_goes(memory.going, now) if memory.going else words,
            )
        case TaskState.CANCELLED if memory.state is SliceState.FAILED:
            # It was we who cancelled it.
            return Verdict(SliceState.FAILED, memory.reason, exhausted=memory.exhausted)
        case TaskState.CANCELLED:
            return Verdict(SliceState.CANCELLED, task.reason or "cancelled by a user")
        case TaskState.UNKNOWN:
            return Verdict(
                SliceState.UNKNOWN, task.reason or "the scheduler reports a state not known here"
            )
        case _:
            return _judge_ended(rules, index, view, task, memory, now)


def _judge_running(
    rules: Rules, index: int, view: SliceView, task: Task, memory: SliceMemory, now: float
) -> Verdict:
    over = memory.was_ready == task.incarnation and view.is_over(task)
    if over and memory.doubt.reached(min(_OVER_S, rules.heartbeat_timeout_s)):
        cause = view.report.reason if view.report else ""
        cause = slice_words.of_silence(view, task, memory) if view.silent else cause
        return _start_over(rules, index, view, task, memory, now, cause)
    if view.silent and memory.doubt.reached(rules.heartbeat_timeout_s):
        cause = slice_words.of_silence(view, task, memory)
        return _start_over(rules, index, view, task, memory, now, cause)
    if memory.going is not None:
        return Verdict(SliceState.ENDING, words_while_it_goes(memory.going, now))
    if over and not view.silent:
        assert view.report is not None  # or it would not be over
        words = f"the resource manager says that its run is over: {view.report.reason}"
        return Verdict(SliceState.UNREACHABLE, words)
    if earlier := view.leftover(task):
        words = f"who answers is left from an earlier run (incarnation {earlier})"
        return Verdict(SliceState.STARTING, words)
    if view.silent == ():
        return Verdict(SliceState.READY, "every host answers")
    if memory.was_ready == task.incarnation:
        return Verdict(SliceState.UNREACHABLE, slice_words.at_silence(view, task))
    return Verdict(SliceState.STARTING, "not every host answers on its port yet")


def _judge_ended(
    rules: Rules, index: int, view: SliceView, task: Task, memory: SliceMemory, now: float
) -> Verdict:
    if memory.going and memory.doubt.looks and memory.doubt.lasted_s < REPORT_S:
        return Verdict(SliceState.ENDING, "its processes have ended")
    if memory.maintenance is not None:
        words, actions = give_back(index, memory.maintenance)
        return Verdict(SliceState.MAINTENANCE, words, actions)
    if memory.state is SliceState.MAINTENANCE:
        # Ordered once it is over, and again as long as the order has not got through.
        words = "its maintenance is over; requeued"
        return Verdict(SliceState.PENDING, words, _rerun(index, task), ordered=task.incarnation)
    cause = slice_words.cause_of_the_end(view, task) or task.state.value
    return _start_over(rules, index, view, task, memory, now, cause)


def _rerun(index: int, task: Task) -> tuple[Action, ...]:
    requeue = Requeue(task.id, index)
    # The wait that a requeue brings is lifted with it, where there is no end to be waited for.
    return (requeue, Release(task.id, index)) if task.state.ended else (requeue,)


def _start_over(
    rules: Rules,
    index: int,
    view: SliceView,
    task: Task,
    memory: SliceMemory,
    now: float,
    cause: str,
) -> Verdict:
    """Another run of the slice; one that still runs is ended first."""
    requeue = _rerun(index, task)
    if memory.going is not None:
        words = f"{slice_words.announced_end(task)}{words_once_it_went(memory.going)}; requeued"
        return Verdict(SliceState.PENDING, words, requeue)
    if task.preempted or task.state is TaskState.PREEMPTED:
        return Verdict(SliceState.PENDING, "preempted; requeued", requeue)
    if memory.ordered == task.incarnation:
        # Ordered and counted at an earlier look; the order may not have got through.
        return Verdict(SliceState.PENDING, f"{cause}; requeued", requeue)
    counted_as = cause_of(task, view.first_end(task))
    wanted = Retry(counted_as, cause, "requeued", requeue, task.incarnation)
    verdict = retry(rules, memory, wanted, now)
    if task.state.ended or verdict.ordered is not None:
        return verdict
    if verdict.state is SliceState.FAILED:
        return replace(verdict, actions=(Cancel((task.id,)),))
    # It still has its nodes, and is not to be ended before it may be started over.
    return replace(verdict, state=SliceState.UNREACHABLE)


def _judge_held(rules: Rules, index: int, task: Task, memory: SliceMemory, now: float) -> Verdict:
    if memory.maintenance is not None:
        words, actions = give_back(index, memory.maintenance)
        return Verdict(SliceState.MAINTENANCE, words, actions)
    if task.reason in HOLDS:
        words = f"held by {HOLDS[task.reason]} ({task.reason}): it waits for "
        return Verdict(SliceState.PENDING, f"{words}scontrol release {task.id}")
    release = (Release(task.id, index),)
    # Slurm has counted a restart by the time it holds a task for what became of its last run. One
    # that it holds before its first has no run behind it, and that first one is still to be judged.
    over = task.incarnation - 1 if task.restarts else -task.incarnation
    if is_held_by_order(task):
        words = "requeued to be held, by order (scontrol requeuehold); released"
        return Verdict(SliceState.PENDING, words, release, ordered=over)
    cause = f"held by the scheduler: {task.reason or 'no reason given'}"
    if memory.ordered == over:
        return Verdict(SliceState.PENDING, f"{cause}; released", release)
    wanted = Retry(cause_of(task, None), cause, "released", release, over)
    return retry(rules, memory, wanted, now)


def _decide_missing(
    rules: Rules, index: int, view: SliceView, memory: SliceMemory, now: float
) -> SliceDecision:
    memory = replace(remember_request(memory, view.maintenance), doubt=NOT_ONCE)
    since = memory.missing_since or now
    if memory.state in _DOWN_FOR_GOOD:
        # What is down for good is forgotten by the scheduler after a while.
        return SliceDecision(replace(memory, missing_since=since))
    if now - since < rules.missing_grace_s:
        return SliceDecision(_doubt_absent(replace(memory, missing_since=since), view.task, now))
    if view.task is not None and not view.task.state.ended:
        # Only one task of a slice may live, and this one could only run under a number that is
        # taken: the next one comes when it has ended.
        absent = _doubt_absent(replace(memory, missing_since=since), view.task, now)
        return SliceDecision(absent, (Cancel((view.task.id,)),))
    if memory.maintenance is not None:
        words, actions = give_back(index, memory.maintenance)
        moved = memory.state is not SliceState.MAINTENANCE
        memory = replace(memory, since=now if moved else memory.since)
        return SliceDecision(replace(memory, state=SliceState.MAINTENANCE, reason=words), actions)
    cause = memory.exhausted or Cause.MISSING
    words = memory.reason.partition(";")[0] if memory.exhausted else ""
    words = words or f"{_absence(view.task)} for {now - since:.0f} s"
    wanted = Retry(cause, words, "submitted again", (), memory.incarnation)
    verdict = retry(rules, memory, wanted, now)
    after = _remember(memory, memory, verdict, now)
    resubmit = verdict.ordered is not None
    after = replace(after, missing_since=0.0 if resubmit else since)
    notes = notes_of_absence(index, memory, after, words)
    return SliceDecision(after, notes=notes, resubmit=resubmit)


def _absence(older: Task | None) -> str:
    if older is None:
        return "its task was absent from the scheduler's answers"
    return f"the scheduler knew no newer run of it than {older.incarnation} ({older.state.value})"


def _doubt_absent(memory: SliceMemory, older: Task | None, now: float) -> SliceMemory:
    """Whether it still runs can't be seen, which is no loss and not to be called ready."""
    if memory.state not in (SliceState.READY, SliceState.UNREACHABLE):
        return memory
    return replace(memory, state=SliceState.UNKNOWN, since=now, reason=_absence(older))


def _remember(memory: SliceMemory, known: SliceMemory, verdict: Verdict, now: float) -> SliceMemory:
    moved = verdict.state is not memory.state or known.incarnation != memory.incarnation
    after = replace(
        known,
        state=verdict.state,
        since=now if moved else memory.since,
        reason=verdict.reason,
        spent=known.spent if verdict.spent is None else verdict.spent,
        exhausted=verdict.exhausted,
        ordered=known.ordered if verdict.ordered is None else verdict.ordered,
    )
    if verdict.state is not SliceState.READY:
        return after
    first = after.was_ready in (0, after.incarnation)
    return replace(
        after,
        was_ready=after.incarnation,
        back_since=after.back_since if first else now,
        departure=None,
    )
