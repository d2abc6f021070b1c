# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Which slices hold data that counts, and what became of those that don't.

Pure: a new :class:`Health` follows from the last one and a snapshot of membership.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from pathways_emulator.membership import Membership, SliceMember
from pathways_emulator.proxy.status import Code, Status


@dataclass(frozen=True, slots=True)
class SliceHealth:
    """One slice as the proxy sees it.

    Attributes:
        incarnation: Whose data counts; 0 while the slice is dead.
        error: What arrays on a dead slice are; None while it is alive.
    """

    incarnation: int
    error: Status | None


@dataclass(frozen=True, slots=True, eq=False)
class Health:
    """All slices at one moment. Compared by identity."""

    slices: tuple[SliceHealth, ...]

    def incarnations(self, slices: Iterable[int]) -> tuple[tuple[int, int], ...]:
        """What an array on these slices must remember, to know later whether it is lost."""
        return tuple((index, self.slices[index].incarnation) for index in slices)

    def error_of(self, slices: Iterable[int]) -> Status | None:
        """The error of a new array on these slices: that of the first dead one."""
        for index in slices:
            error = self.slices[index].error
            if error is not None:
                return error
        return None

    def loss_of(self, incarnations: Iterable[tuple[int, int]]) -> Status | None:
        """The error of an array with these incarnations; None if its data still counts."""
        for index, incarnation in incarnations:
            now = self.slices[index]
            if now.error is not None:
                return now.error
            if now.incarnation != incarnation:
                return _lost(
                    index, f"its data was lost when it restarted (incarnation {now.incarnation})"
                )
        return None


def first_health(membership: Membership) -> Health:
    """The health at the first snapshot."""
    return Health(tuple(_health(member) for member in membership.slices))


def next_health(last: Health, membership: Membership) -> Health:
    """The health after one more snapshot.

    A slice that is merely missing from an unsettled snapshot is kept: the resource manager has
    restarted and has not heard of it yet. Returns ``last`` itself if nothing changed.
    """
    slices = tuple(
        _next(before, member, membership.settled)
        for before, member in zip(last.slices, membership.slices, strict=True)
    )
    return last if slices == last.slices else Health(slices)


def _next(before: SliceHealth, member: SliceMember, settled: bool) -> SliceHealth:
    # The same incarnation, not alive, has ended: one that is still coming back is reported as 0.
    missing = not member.alive and member.incarnation < before.incarnation
    if before.error is None and missing and not settled:
        return before
    return _health(member)


def _health(member: SliceMember) -> SliceHealth:
    if member.alive:
        return SliceHealth(member.incarnation, None)
    return SliceHealth(0, _lost(member.index, member.reason or "is not up"))


def _lost(index: int, reason: str) -> Status:
    return Status(Code.DATA_LOSS, f"slice {index}: {reason}")
