# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What a slice's transitions are called, and told as. Pure."""

import math
from collections.abc import Iterator

from pathways_slurm.events import Reason
from pathways_slurm.model import SliceMemory
from pathways_slurm.plan import Note
from pathways_slurm.scheduler.base import Task
from pathways_slurm.states import SliceState, TaskState

_ENTERED = {
    SliceState.PENDING: Reason.SlicePending,
    SliceState.STARTING: Reason.SliceStarting,
    SliceState.READY: Reason.SliceReady,
    SliceState.UNREACHABLE: Reason.SliceUnreachable,
    SliceState.FAILED: Reason.SliceFailed,
    SliceState.CANCELLED: Reason.SliceCancelled,
    SliceState.MAINTENANCE: Reason.SliceMaintenance,
}


def notes_of(
    index: int,
    before: SliceMemory,
    known: SliceMemory,
    after: SliceMemory,
    task: Task,
    cause: str,
    now: float,
) -> tuple[Note, ...]:
    """The events that lead from one memory of a slice to the next.

    Args:
        index: Of the slice.
        before: As of the last look.
        known: With what was seen now.
        after: With what was concluded from it.
        task: The slice's newest one.
        cause: Of the end of its run, if that is over.
        now: Unix time in seconds.
    """
    subject = f"slice {index}"
    sentences = (
        *_of_departure(subject, before, after, now),
        *_of_the_end(subject, before, known, after, cause),
        *_of_a_budget(subject, before, after),
        *_of_the_state(subject, before, after, task, now),
    )
    return tuple(Note(reason, words, subject) for reason, words in sentences)


def notes_of_absence(
    index: int, before: SliceMemory, after: SliceMemory, cause: str
) -> tuple[Note, ...]:
    """The same of a slice whose task the scheduler does not list any more."""
    subject = f"slice {index}"
    sentences: list[tuple[Reason, str]] = []
    if before.up and not after.up:
        sentences.append((Reason.SliceLost, f"{subject} lost: {cause}"))
    sentences.extend(_of_a_budget(subject, before, after))
    if after.ordered != before.ordered:
        sentences.append((Reason.SliceRequeued, f"{subject}: {after.reason}"))
    if after.state is not before.state and after.state is SliceState.FAILED:
        sentences.append((Reason.SliceFailed, f"{subject} failed: {after.reason}"))
    return tuple(Note(reason, words, subject) for reason, words in sentences)


def _of_a_budget(
    subject: str, before: SliceMemory, after: SliceMemory
) -> Iterator[tuple[Reason, str]]:
    waits = after.exhausted is not None and after.state is not SliceState.FAILED
    if waits and before.exhausted is not after.exhausted:
        yield Reason.BudgetExhausted, f"{subject}: {after.reason}"


def _of_departure(
    subject: str, before: SliceMemory, after: SliceMemory, now: float
) -> Iterator[tuple[Reason, str]]:
    going = after.going
    if going is None or not after.up:
        return
    if before.going is None:
        left_s = max(0, math.ceil(going.deadline - now))
        yield Reason.SliceNotice, f"{subject} goes within {left_s} s: {going.reason}"
    if going.acknowledged and not (before.going and before.going.acknowledged):
        yield Reason.SliceAcknowledged, f"{subject} may go: its programs have left it"


def _of_the_end(
    subject: str, before: SliceMemory, known: SliceMemory, after: SliceMemory, cause: str
) -> Iterator[tuple[Reason, str]]:
    renewed = after.incarnation != before.incarnation
    if before.up and (renewed or not after.up):
        gone = known.departure
        after_notice = gone is not None and gone.incarnation == before.incarnation
        if renewed and after.state in (SliceState.READY, SliceState.STARTING):
            cause = "it was restarted between two looks"
        if gone and after_notice and gone.released:
            yield Reason.SliceGone, f"{subject} went after notice ({gone.reason}): {gone.released}"
        elif gone and after_notice:
            yield Reason.SliceLost, f"{subject} lost after notice ({gone.reason}): {cause}"
        else:
            yield Reason.SliceLost, f"{subject} lost: {cause}"


def _of_the_state(
    subject: str, before: SliceMemory, after: SliceMemory, task: Task, now: float
) -> Iterator[tuple[Reason, str]]:
    ordered = after.ordered != before.ordered
    if ordered:
        held = task.state is TaskState.HELD
        yield Reason.SliceReleased if held else Reason.SliceRequeued, f"{subject}: {after.reason}"
    moved = after.state is not before.state or after.incarnation != before.incarnation
    entered = _ENTERED.get(after.state)
    if not moved or entered is None or (entered is Reason.SlicePending and ordered):
        return
    words = f"{subject} {after.state.value.lower()}"
    if after.state is SliceState.READY:
        nodes = ", ".join(node.name for node in task.nodes)
        words += f" on {nodes} (incarnation {after.incarnation})"
        if task.since:
            words += f", {max(0.0, now - task.since):.1f} s after its start"
    else:
        words += f": {after.reason}"
    yield entered, words
