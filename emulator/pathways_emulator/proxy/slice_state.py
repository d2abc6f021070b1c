# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The life of one slice as the proxy sees it, and what a snapshot of membership makes of it. Pure.

::

    Up ──notice──▶ Saving ──saved──▶ Suspended ──a newer run──▶ Restoring ──restored──▶ Up
     │               │                   │  ◀──its end, notice──   │
     └──its end──────┴────its end, or────┴────────abandoned────────┴──▶ Down ──a newer run──▶ Up
                        can't be saved,
                        or nothing to save
"""

import dataclasses
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from pathways_emulator.membership import Membership, SliceMember
from pathways_emulator.proxy.health import Health, SliceHealth, lost
from pathways_emulator.proxy.status import Status

# Why a slice that got a notice is let go, if that is so.
NOTHING_TO_SAVE = "there was nothing on it to be saved"

# Of the time that a notice leaves, what it takes to tell the workers that they may end.
RELEASE_MARGIN_S = 1.0


@dataclass(frozen=True, slots=True)
class Up:
    """Its data is in memory and counts."""

    incarnation: int


@dataclass(frozen=True, slots=True)
class Down:
    """Its data is lost, or there never was any.

    Attributes:
        error: What its arrays are.
        written_off: The newest incarnation whose data was given up while it was alive; only a
            greater one may hold data again. 0 if there is none.
        release_due: ``written_off`` must still be told that nothing keeps it.
        empty: It had no data, so nothing is lost with it.
    """

    error: Status
    written_off: int = 0
    release_due: bool = False
    empty: bool = False


@dataclass(frozen=True, slots=True)
class Saving:
    """It got a notice: nothing new begins, and its data goes to a file.

    Attributes:
        incarnation: That is alive.
        notice: Why it is about to go.
        deadline_s: On the monotonic clock: when the data must have been saved.
    """

    incarnation: int
    notice: str
    deadline_s: float


@dataclass(frozen=True, slots=True)
class Suspended:
    """Its data is in a file and counts.

    Attributes:
        incarnation: Whose data it is.
        going: The newest incarnation that got a notice; a greater one brings the data back.
        release_due: ``going`` must still be told that nothing keeps it.
    """

    incarnation: int
    going: int
    release_due: bool = False


@dataclass(frozen=True, slots=True)
class Restoring:
    """A newer run is alive: the data comes back from the file, which stays until all is there.

    Attributes:
        incarnation: Whose data it is.
        target: Whose it is going to be.
    """

    incarnation: int
    target: int


type SliceState = Up | Down | Saving | Suspended | Restoring


def first_states(membership: Membership, *, suspends: bool, now_s: float) -> tuple[SliceState, ...]:
    """The states at the first snapshot; see :func:`next_states`."""
    none = tuple(Down(lost(member.index, "is not up"), empty=True) for member in membership.slices)
    # There is nothing yet that an unsettled snapshot could be missing.
    return next_states(
        none, dataclasses.replace(membership, settled=True), suspends=suspends, now_s=now_s
    )


def next_states(
    states: Sequence[SliceState], membership: Membership, *, suspends: bool, now_s: float
) -> tuple[SliceState, ...]:
    """The states after one more snapshot; a slice's own object if nothing has changed for it.

    A slice that is merely missing from an unsettled snapshot is kept: the resource manager has
    restarted and has not heard of it yet.

    Args:
        states: Before.
        membership: The snapshot.
        suspends: Whether a notice makes a slice be suspended.
        now_s: The monotonic clock.
    """
    new = (
        _next(state, member, membership.settled, suspends, now_s)
        for state, member in zip(states, membership.slices, strict=True)
    )
    return tuple(
        before if after == before else after for before, after in zip(states, new, strict=True)
    )


def health_of(states: Iterable[SliceState]) -> Health:
    """What states mean for data."""
    return Health(tuple(_health(index, state) for index, state in enumerate(states)))


def _next(
    state: SliceState, member: SliceMember, settled: bool, suspends: bool, now_s: float
) -> SliceState:
    # The same incarnation, not alive, has ended: one that is still coming back is reported as 0.
    missing = not member.alive and not settled
    match state:
        case Saving(incarnation):
            if missing and member.incarnation < incarnation:
                return state
            if not member.alive:
                reason = f"{_reason(member)}; its data was not saved before it ended"
                return Down(lost(member.index, reason))
            if member.incarnation > incarnation:
                return _alive(member, suspends, now_s)
            return _abandoned(member, incarnation, release=True) or state
        case Suspended(incarnation, going):
            if member.alive and member.incarnation > going:
                return _returned(incarnation, member)
            return _abandoned(member, going, release=False) or state
        case Restoring(incarnation, target):
            if missing and member.incarnation < target:
                return state
            if member.alive:
                return _returned(incarnation, member)
            return _abandoned(member, target, release=False) or Suspended(incarnation, incarnation)
        case Up(incarnation):
            if missing and member.incarnation < incarnation:
                return state
        case Down(_, written_off):
            if written_off and member.incarnation <= written_off:
                return state
    if member.alive:
        return _alive(member, suspends, now_s)
    return Down(lost(member.index, _reason(member)), empty=isinstance(state, Down) and state.empty)


def saved(state: Saving, index: int, *, files: int) -> SliceState:
    """The state once everything is in files and no longer in memory.

    Args:
        state: Before.
        index: Of the slice.
        files: How many there are. Without any, nobody has a reason to wait for the slice.
    """
    if files:
        return Suspended(state.incarnation, state.incarnation, release_due=True)
    error = lost(index, f"{state.notice}, and {NOTHING_TO_SAVE}")
    return Down(error, state.incarnation, release_due=True, empty=True)


def given_up(state: Saving, index: int, reason: str) -> SliceState:
    """The state when the data of a slice that is still alive can't be kept.

    Args:
        state: Before.
        index: Of the slice.
        reason: Why it could not be saved.
    """
    error = lost(index, f"{state.notice}, and its data could not be saved: {reason}")
    return Down(error, state.incarnation, release_due=True)


def released(state: SliceState) -> SliceState:
    """The state once the resource manager was told."""
    if isinstance(state, Suspended | Down):
        return dataclasses.replace(state, release_due=False)
    return state


def asks_for_work(state: SliceState) -> bool:
    """Whether there is something to do that takes time."""
    match state:
        case Saving() | Restoring():
            return True
        case Suspended() | Down():
            return state.release_due
    return False


def kept(state: SliceState) -> int | None:
    """The incarnation whose data is in files, or on its way there; None if none is."""
    return state.incarnation if isinstance(state, Saving | Suspended | Restoring) else None


def describe(index: int, state: SliceState) -> str:
    """A state for the log."""
    match state:
        case Up(incarnation):
            return f"slice {index} is up (incarnation {incarnation})"
        case Down(error, empty=empty):
            return error.message if empty else f"{error.message} (its data is lost)"
        case Saving(incarnation, notice):
            return f"slice {index} is about to go: {notice}; saving incarnation {incarnation}"
        case Suspended(incarnation):
            return f"slice {index} is suspended (incarnation {incarnation})"
        case Restoring(incarnation, target):
            return f"slice {index} is back: restoring incarnation {incarnation} to {target}"


def why_not_kept(stateful: Collection[str]) -> str | None:
    """Why a session can't be restored later, or None if it can.

    Args:
        stateful: What the session runs that has state beside its arrays.
    """
    if not stateful:
        return None
    return f"the session uses {', '.join(sorted(stateful))}, whose state can't be saved"


def all_lost(states: Sequence[SliceState]) -> frozenset[int]:
    """The slices whose data is lost.

    Neither those that wait for their first start, which nobody has missed yet, nor those that are
    suspended, or would be if there had been anything to save.
    """
    return frozenset(
        index for index, state in enumerate(states) if isinstance(state, Down) and not state.empty
    )


def too_many_lost(lost_before: Collection[int], lost_now: Collection[int], limit: int) -> bool:
    """Whether this change is one loss too many for sessions that are open.

    Both are the slices of :func:`all_lost`. A session that opens while many are missing sees them
    so from its start; only a further loss ends it.

    Args:
        lost_before: Before the change.
        lost_now: After it.
        limit: How many may be lost at once.
    """
    return len(lost_now) > limit and not set(lost_now) <= set(lost_before)


def _alive(member: SliceMember, suspends: bool, now_s: float) -> SliceState:
    if not suspends or member.notice is None:
        return Up(member.incarnation)
    deadline_s = now_s + member.notice.left_s - RELEASE_MARGIN_S
    return Saving(member.incarnation, member.notice.reason, deadline_s)


def _returned(incarnation: int, member: SliceMember) -> SliceState:
    if member.notice is not None:
        # It is about to go again: what is saved stays where it is.
        return Suspended(incarnation, member.incarnation, release_due=True)
    return Restoring(incarnation, member.incarnation)


def _abandoned(member: SliceMember, incarnation: int, *, release: bool) -> Down | None:
    if not member.abandoned:
        return None
    reason = f"it was suspended and will not return: {member.abandoned}"
    return Down(lost(member.index, reason), incarnation, release_due=release)


def _reason(member: SliceMember) -> str:
    return member.reason or "is not up"


def _health(index: int, state: SliceState) -> SliceHealth:
    match state:
        case Down(error):
            return SliceHealth(0, error)
        case Up(incarnation):
            return SliceHealth(incarnation, None)
        case Saving(incarnation):
            # Who has data on it is known when computations have ended.
            return SliceHealth(incarnation, None, held=True)
        case Suspended(incarnation) | Restoring(incarnation):
            absent = lost(index, "it is suspended, and nothing of this program is on it")
            return SliceHealth(incarnation, None, held=True, absent=absent)
