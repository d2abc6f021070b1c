# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What to do about one slice. Pure: no clock, no I/O."""

from dataclasses import dataclass, replace

from pathways_slurm.causes import USERS_HOLD, Cause, cause_of
from pathways_slurm.decide_departure import (
    departure_of,
    words_once_it_went,
    words_while_it_goes,
)
from pathways_slurm.decide_maintenance import give_back, remember_request, tell
from pathways_slurm.decide_retry import Retry, Verdict, retry
from pathways_slurm.maintenance import Request
from pathways_slurm.model import Rules, SliceMemory
from pathways_slurm.plan import Action, Cancel, Note, Release, Requeue
from pathways_slurm.runtime_files import SliceReport
from pathways_slurm.scheduler.base import BEGIN_TIME, Task
from pathways_slurm.slice_notes import notes_of, notes_of_absence
from pathways_slurm.states import SliceState, TaskState
from pathways_slurm.streak import NOT_ONCE

# A run that the resource manager says is over ends by itself, sooner than this, or hangs.
_OVER_S = 5.0
# The resource manager says of a run that has ended whether it was released; it may be a bit slower
# than the scheduler.
_REPORT_S = 2.0

_DOWN_FOR_GOOD = (SliceState.FAILED, SliceState.CANCELLED)


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
    notes = notes_of(index, memory, known, after, task, _cause(view, task) or after.reason, now)
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
    doubted = memory.was_ready == task.incarnation and _is_doubtful(view, task)
    doubt = present.doubt.extended(now, rules.longest_gap_s) if doubted else NOT_ONCE
    present = replace(present, departure=departure, doubt=doubt)
    return remember_request(present, view.maintenance)


def _is_doubtful(view: SliceView, task: Task) -> bool:
    """Scheduler, hosts and resource manager do not agree on what becomes of it."""
    if task.state is TaskState.RUNNING:
        return bool(view.silent) or _is_over(view, task)
    report = view.report
    if report is None or report.incarnation != task.incarnation:
        return False
    return task.state.ended and report.alive


def _is_over(view: SliceView, task: Task) -> bool:
    """By the word of the resource manager, of a run that was complete."""
    report = view.report
    if report is None or not view.settled or report.alive:
        return False
    return report.incarnation >= task.incarnation


def _judge(
    rules: Rules, index: int, view: SliceView, task: Task, memory: SliceMemory, now: float
) -> Verdict:
    match task.state:
        case TaskState.PENDING if task.restarts and task.reason == BEGIN_TIME:
            # Slurm makes a requeued task wait, by default for two minutes; its owner may lift that.
            words = "requeued; the time that it has to wait is being lifted"
            return Verdict(SliceState.PENDING, words, (Release(task.id, index),))
        case TaskState.PENDING | TaskState.CONFIGURING:
            return Verdict(SliceState.PENDING, _words_while_pending(task, memory))
        case TaskState.HELD:
            return _judge_held(rules, index, task, memory, now)
        case TaskState.RUNNING:
            return _judge_running(rules, index, view, task, memory, now)
        case TaskState.COMPLETING:
            words = _cause(view, task) or "its processes are ending"
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


def _words_while_pending(task: Task, memory: SliceMemory) -> str:
    configuring = task.state is TaskState.CONFIGURING
    words = task.reason or ("its nodes are being started" if configuring else "waits for nodes")
    if memory.maintenance is not None:
        words += "; it is not to run, for maintenance is asked for"
    gone = memory.departure
    if gone is None or not gone.released:
        return words
    return f"{words_once_it_went(gone)}; {words}"


def _judge_running(
    rules: Rules, index: int, view: SliceView, task: Task, memory: SliceMemory, now: float
) -> Verdict:
    over = memory.was_ready == task.incarnation and _is_over(view, task)
    if over and memory.doubt.reached(min(_OVER_S, rules.heartbeat_timeout_s)):
        cause = view.report.reason if view.report else ""
        cause = _words_of_silence(task, view.silent, memory) if view.silent else cause
        return _start_over(rules, index, view, task, memory, now, cause)
    if view.silent and memory.doubt.reached(rules.heartbeat_timeout_s):
        cause = _words_of_silence(task, view.silent, memory)
        return _start_over(rules, index, view, task, memory, now, cause)
    if memory.going is not None:
        return Verdict(SliceState.ENDING, words_while_it_goes(memory.going, now))
    if over and not view.silent:
        assert view.report is not None  # or it would not be over
        words = f"the resource manager says that its run is over: {view.report.reason}"
        return Verdict(SliceState.UNREACHABLE, words)
    if view.silent == ():
        return Verdict(SliceState.READY, "every host answers")
    if memory.was_ready == task.incarnation:
        return Verdict(SliceState.UNREACHABLE, _words_at_silence(task, view.silent))
    return Verdict(SliceState.STARTING, "not every host answers on its port yet")


def _hosts(task: Task, silent: tuple[int, ...]) -> str:
    named = [f"{host} ({task.nodes[host].name})" for host in silent]
    return f"host{'s' if len(named) > 1 else ''} {', '.join(named)}"


def _words_at_silence(task: Task, silent: tuple[int, ...] | None) -> str:
    if not silent:
        return "its hosts could not be asked"
    if len(silent) == 1:
        return f"{_hosts(task, silent)} has stopped answering on its port"
    return f"{_hosts(task, silent)} have stopped answering on their ports"


def _words_of_silence(task: Task, silent: tuple[int, ...], memory: SliceMemory) -> str:
    have = "has" if len(silent) == 1 else "have"
    return f"{_hosts(task, silent)} {have} been silent for {memory.doubt.lasted_s:.0f} s"


def _cause(view: SliceView, task: Task) -> str:
    """Of a run's end, as far as it is known.

    The scheduler knows which process ended first and how; that it ended because another host was
    silent is what the resource manager knows.
    """
    if not task.reason or view.report is None or not _is_over(view, task):
        return task.reason
    return f"{task.reason} (resource manager: {view.report.reason})"


def _judge_ended(
    rules: Rules, index: int, view: SliceView, task: Task, memory: SliceMemory, now: float
) -> Verdict:
    if memory.going and memory.doubt.looks and memory.doubt.lasted_s < _REPORT_S:
        return Verdict(SliceState.ENDING, "its processes have ended")
    if memory.maintenance is not None:
        words, actions = give_back(index, memory.maintenance)
        return Verdict(SliceState.MAINTENANCE, words, actions)
    if memory.state is SliceState.MAINTENANCE:
        # Ordered once it is over, and again as long as the order has not got through.
        words = "its maintenance is over; requeued"
        return Verdict(SliceState.PENDING, words, _rerun(index, task), ordered=task.incarnation)
    cause = _cause(view, task) or task.state.value
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
        words = f"{words_once_it_went(memory.going)}; requeued"
        return Verdict(SliceState.PENDING, words, requeue)
    if task.preempted or task.state is TaskState.PREEMPTED:
        return Verdict(SliceState.PENDING, "preempted; requeued", requeue)
    if memory.ordered == task.incarnation:
        # Ordered and counted at an earlier look; the order may not have got through.
        return Verdict(SliceState.PENDING, f"{cause}; requeued", requeue)
    runtime_words = view.report.reason if view.report and _is_over(view, task) else ""
    counted_as = cause_of(task, runtime_words)
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
    if task.reason == USERS_HOLD:
        words = f"held by a user ({task.reason}): it waits for scontrol release {task.id}"
        return Verdict(SliceState.PENDING, words)
    release = (Release(task.id, index),)
    cause = f"held by the scheduler: {task.reason or 'no reason given'}"
    if memory.ordered == task.incarnation:
        return Verdict(SliceState.PENDING, f"{cause}; released", release)
    wanted = Retry(cause_of(task, ""), cause, "released", release, task.incarnation)
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
