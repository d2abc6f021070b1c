# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""A slice whose nodes are wanted for a while: told, ended, kept down, and let come back. Pure."""

import signal
from collections.abc import Mapping
from dataclasses import replace

from pathways_slurm.maintenance import Request
from pathways_slurm.model import Departure, MaintenanceMemory, Memory, Rules, SliceMemory
from pathways_slurm.plan import Action, Notify, PowerDown
from pathways_slurm.scheduler.base import Task
from pathways_slurm.states import TaskState

# A signal reaches no host whose program is just starting. A further one changes nothing.
_TELL_AGAIN_S = 10.0


def requests_in_force(seen: Mapping[int, Request] | None, memory: Memory) -> Mapping[int, Request]:
    """By slice index: those there are, or those there were if that can't be seen."""
    if seen is not None:
        return seen
    return {i: s.maintenance.request for i, s in memory.slices.items() if s.maintenance}


def remember_request(memory: SliceMemory, request: Request | None) -> SliceMemory:
    """With the request as it is now; without what was done about it once it is gone."""
    if request is None:
        return replace(memory, maintenance=None)
    known = memory.maintenance or MaintenanceMemory(request)
    return replace(memory, maintenance=replace(known, request=request))


def tell(
    rules: Rules, index: int, task: Task, memory: SliceMemory, now: float
) -> tuple[SliceMemory, tuple[Action, ...]]:
    """Has the hosts of a run that is wanted away told so, and ends it by force when time is up.

    Returns:
        The memory, in which the slice is about to go; and what to do.
    """
    asked = memory.maintenance
    if asked is None or task.state is not TaskState.RUNNING:
        return memory, ()
    deadline = asked.request.deadline
    if now >= deadline and asked.notified == task.incarnation:
        return memory, (Notify(task.id, index, signal.SIGKILL),)
    if asked.notified == task.incarnation and now - asked.notified_at < _TELL_AGAIN_S:
        return memory, ()
    nodes = tuple(node.name for node in task.nodes)
    asked = replace(asked, notified=task.incarnation, notified_at=now, nodes=nodes, freed="")
    # Programs hear of it at once, and also where the runtime has no report.
    reason = f"maintenance{_why(asked.request)}"
    going = Departure(task.incarnation, reason, min(deadline, now + rules.notice_s))
    after = replace(memory, maintenance=asked, departure=memory.going or going)
    return after, (Notify(task.id, index, signal.SIGTERM),)


def give_back(index: int, asked: MaintenanceMemory) -> tuple[str, tuple[Action, ...]]:
    """What a user reads of a slice that is down for maintenance, and what to do with its nodes."""
    words = f"down for maintenance{_why(asked.request)}; it starts again once the request is "
    words += f"withdrawn (pathways-slurm maintenance --done {index})"
    if not asked.nodes:
        return words, ()
    freed = asked.freed or "its nodes are given back"
    return f"{freed}; {words}", () if asked.freed else (PowerDown(index, asked.nodes),)


def _why(request: Request) -> str:
    return f" ({request.reason})" if request.reason else ""
