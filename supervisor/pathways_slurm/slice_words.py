# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Why a slice is as it is, in words for people. Pure."""

from pathways_slurm.decide_departure import words_once_it_went
from pathways_slurm.model import SliceMemory
from pathways_slurm.runtime_files import EndKind, FirstEnd
from pathways_slurm.scheduler.base import Task
from pathways_slurm.slice_view import SliceView
from pathways_slurm.states import TaskState


def cause_of_the_end(view: SliceView, task: Task) -> str:
    """Of a run's end, as far as it is known; "" if it is not.

    The scheduler knows how a process ended, but it may be that of a host that ended because another
    one was silent, or had ended with code 0: that is what the resource manager knows.
    """
    report = view.report
    if task.state is TaskState.PENDING:
        # Its reason is what it waits for, such as BeginTime; its run is over all the same.
        return task.ended_for
    if not task.reason or report is None or report.released or not view.is_over(task):
        return task.reason
    match view.first_end(task):
        case FirstEnd(kind=EndKind.SILENT):
            return report.reason
        case FirstEnd(host=host, kind=EndKind.LEFT):
            return f"host {host} exited with code 0 (resource manager: {report.reason})"
    return f"{task.reason} (resource manager: {report.reason})"


def at_silence(view: SliceView, task: Task) -> str:
    """Hosts of a run that was ready do not answer."""
    if not view.silent:
        return "its hosts could not be asked"
    silent, known = _first_silent(view, task, view.silent)
    if len(silent) == 1:
        return f"{_hosts(task, silent)} has stopped answering on its port{known}"
    return f"{_hosts(task, silent)} have stopped answering on their ports"


def of_silence(view: SliceView, task: Task, memory: SliceMemory) -> str:
    """They have not for too long."""
    silent, known = _first_silent(view, task, view.silent or ())
    have = "has" if len(silent) == 1 else "have"
    return f"{_hosts(task, silent)} {have} been silent for {memory.doubt.lasted_s:.0f} s{known}"


def _first_silent(
    view: SliceView, task: Task, silent: tuple[int, ...]
) -> tuple[tuple[int, ...], str]:
    """Of silent hosts the one that ended the run, if that is known, and what is known of its end.

    The others have ended because it had.
    """
    end = view.first_end(task)
    if end is None or view.report is None or end.host not in silent:
        return silent, ""
    return (end.host,), f" (resource manager: {view.report.reason})"


def _hosts(task: Task, silent: tuple[int, ...]) -> str:
    named = [f"{host} ({task.nodes[host].name})" for host in silent]
    return f"host{'s' if len(named) > 1 else ''} {', '.join(named)}"


def while_it_ends(task: Task) -> str:
    """Its run is ending, by the scheduler's doing or by itself."""
    why = f"{task.ended_for}: " if task.ended_for else ""
    return f"{why}its processes are ending"


def announced_end(task: Task) -> str:
    """What a notice was of, to begin a sentence with; "" if the scheduler does not say."""
    if task.preempted or task.state is TaskState.PREEMPTED:
        return "preempted, "
    if task.state is TaskState.TIMEOUT:
        return "its time limit was reached, "
    return f"{task.ended_for}, " if task.ended_for else ""


def of_a_requeue(task: Task, memory: SliceMemory) -> str:
    """Why a task is to run again that waits."""
    if memory.ordered == task.incarnation - 1:
        # By the supervisor, which has said why.
        return "requeued"
    gone = memory.departure
    words = task.ended_for or ("preempted" if task.preempted else "requeued by the scheduler")
    if gone is not None and gone.incarnation == task.incarnation - 1:
        words += f", {words_once_it_went(gone)}"
    return words


def while_pending(task: Task, memory: SliceMemory) -> str:
    """It waits for nodes, or for them to boot."""
    configuring = task.state is TaskState.CONFIGURING
    words = task.reason or ("its nodes are being started" if configuring else "waits for nodes")
    if memory.maintenance is not None:
        words += "; it is not to run, for maintenance is asked for"
    gone = memory.departure
    if gone is None or not gone.released:
        return words
    return f"{words_once_it_went(gone)}; {words}"
