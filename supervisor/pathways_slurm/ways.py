# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Every way a slice goes, as users read of it: the table of docs/slices.md.

Tests hold each line against what is really decided, and the document against this table.
"""

from dataclasses import dataclass

from pathways_slurm.causes import Cause
from pathways_slurm.states import SliceState

_WITHIN = "yes, within its budget"
_FREE = "yes; costs no budget"


@dataclass(frozen=True, slots=True)
class Way:
    """One line.

    Attributes:
        what: Happens to the slice.
        state: That ``status`` shows for it next.
        does: The supervisor, about it.
        reason: That ``status`` shows and events say; ``…`` stands for what differs, or nothing.
        back: Whether and how the slice comes back.
        cause: That the restart is counted as; None if it is not counted.
    """

    what: str
    state: SliceState
    does: str
    reason: str
    back: str
    cause: Cause | None = None


WAYS = {
    "crash": Way(
        "a host crashes or is killed",
        SliceState.PENDING,
        "has its task requeued, and lifts the wait that this brings",
        "host … ended by signal …; requeued",
        _WITHIN,
        Cause.CRASH,
    ),
    "error": Way(
        "a host exits with a code other than 0",
        SliceState.PENDING,
        "the same",
        "host … exited with code …; requeued",
        _WITHIN,
        Cause.CRASH,
    ),
    "exit": Way(
        "a host exits with code 0",
        SliceState.PENDING,
        "the same",
        "host … exited with code 0…; requeued",
        _WITHIN,
        Cause.EXIT,
    ),
    "silence": Way(
        "a host stops answering: it hangs, or its node has no power or no network",
        SliceState.UNREACHABLE,
        "waits for PATHWAYS_HEARTBEAT_TIMEOUT_S",
        "host … has stopped answering on its port…",
        "if it answers again, it was never gone",
    ),
    "hang": Way(
        "a host stays silent",
        SliceState.PENDING,
        "ends the run and has its task requeued",
        "host … silent for … s…; requeued",
        _WITHIN,
        Cause.HANG,
    ),
    "launch": Way(
        "Slurm can't launch it and holds it",
        SliceState.PENDING,
        "releases it",
        "held by the scheduler: launch fail…; released",
        _WITHIN,
        Cause.LAUNCH,
    ),
    "held": Way(
        "it is requeued to be held (scontrol requeuehold)",
        SliceState.PENDING,
        "releases it; to keep it down is what scontrol hold, scancel and maintenance are for",
        "requeued to be held, by order (scontrol requeuehold); released",
        _FREE,
    ),
    "hold": Way(
        "a user or an administrator holds it while it waits (scontrol hold)",
        SliceState.PENDING,
        "nothing: that is an order",
        "held by … (JobHeld…): it waits for scontrol release …",
        "once it is released",
    ),
    "node": Way(
        "a node of it fails (slurmd gone, down for Slurm), and Slurm requeues it",
        SliceState.PENDING,
        "lifts the wait that this brings",
        "a node of it failed…; the time that it has to wait is being lifted",
        _FREE,
    ),
    "node, no requeue": Way(
        "a node of it fails, and Slurm does not requeue it",
        SliceState.PENDING,
        "has its task requeued",
        "NodeDown; requeued",
        _WITHIN,
        Cause.NODE,
    ),
    "leftover": Way(
        "Slurm starts it over though its hosts live on, as when a slurmstepd is killed",
        SliceState.STARTING,
        "waits: the next run's hosts end the earlier ones by joining",
        "who answers is left from an earlier run (incarnation …)",
        _FREE,
    ),
    "drain": Way(
        "a node of it is drained",
        SliceState.READY,
        "nothing: it runs on; its next run waits for the node, or has others",
        "every host answers",
        "it has not gone",
    ),
    "time limit": Way(
        "its time limit is reached",
        SliceState.PENDING,
        "has its task requeued",
        "its time limit was reached, went after notice…; requeued",
        _FREE,
    ),
    "time limit, no notice": Way(
        "its time limit is reached, of a runtime that takes no notice",
        SliceState.PENDING,
        "has its task requeued",
        "TimeLimit; requeued",
        _WITHIN,
        Cause.TIME_LIMIT,
    ),
    "missing": Way(
        "Slurm has lost its task, or forgotten it",
        SliceState.PENDING,
        "waits 30 s, then submits the slice again",
        "its task was absent from the scheduler's answers for … s; submitted again",
        _WITHIN,
        Cause.MISSING,
    ),
    "requeue": Way(
        "an administrator requeues it (scontrol requeue)",
        SliceState.PENDING,
        "lifts the wait that this brings",
        "requeued by order (scontrol requeue)…; the time that it has to wait is being lifted",
        _FREE,
    ),
    "power down": Way(
        "an administrator powers a node of it down (power_down_force)",
        SliceState.PENDING,
        "lifts the wait that this brings",
        "…; the time that it has to wait is being lifted",
        "yes, on other nodes or on these once they have booted; costs no budget",
    ),
    "preemption": Way(
        "it is preempted, at once",
        SliceState.PENDING,
        "lifts the wait that this brings",
        "preempted…; the time that it has to wait is being lifted",
        "yes, once nodes are free again; costs no budget",
    ),
    "preemption, grace": Way(
        "it is preempted after a time of grace in which it ends; Slurm 22.05 does not requeue it",
        SliceState.PENDING,
        "has its task requeued, if Slurm has not",
        "preempted, went after notice…",
        "yes, once nodes are free again; costs no budget",
    ),
    "notice": Way(
        "its hosts are given notice (SIGTERM)",
        SliceState.ENDING,
        "tells programs, and waits for the end",
        "goes within … s: host … got SIGTERM",
        _FREE,
    ),
    "after notice": Way(
        "it has gone after notice",
        SliceState.PENDING,
        "has its task requeued",
        "went after notice (…); requeued",
        _FREE,
    ),
    "maintenance": Way(
        "its nodes are asked for (pathways-slurm maintenance)",
        SliceState.MAINTENANCE,
        "ends it and gives its nodes back",
        "…; down for maintenance (…); it starts again once the request is withdrawn (…)",
        "once the request is withdrawn; costs no budget",
    ),
    "cancel": Way(
        "a user cancels it (scancel)",
        SliceState.CANCELLED,
        "nothing: that is an order",
        "cancelled by a user",
        "no; the service goes on while MIN_SLICES can be reached",
    ),
    "backoff": Way(
        "it fails again at once",
        SliceState.PENDING,
        "waits 1, 2, 4 … 60 s before the next try",
        "…; backs off before the next try",
        _WITHIN,
    ),
    "failed": Way(
        "it has failed too often, PATHWAYS_ON_BUDGET=slice or service",
        SliceState.FAILED,
        "gives it up; with service, ends the service for this reason",
        "…; its … restart budget has run out (… of … used in the last … s)",
        "no, but by pathways-slurm maintenance and --done, or scontrol requeue",
    ),
    "wait": Way(
        "it has failed too often, PATHWAYS_ON_BUDGET=wait",
        SliceState.PENDING,
        "waits until the budget's window has passed",
        "…; its … restart budget has run out (… of … used in the last … s); it is tried again once "
        "that allows",
        "then",
    ),
}
"""By a short name of each."""


def table() -> str:
    """The lines as a table in Markdown."""
    head = ("what happens", "state", "the supervisor", "reason", "counted as", "it comes back")
    rows = [head, ("---",) * len(head)]
    for way in WAYS.values():
        counted = f"`{way.cause}`" if way.cause else "-"
        rows.append((way.what, way.state, way.does, f"`{way.reason}`", counted, way.back))
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)
