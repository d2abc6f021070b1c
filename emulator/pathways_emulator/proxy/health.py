# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Which slices hold data that counts, which are held, and what became of the others. Pure."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from pathways_emulator.proxy.status import Code, NotYet, Status


@dataclass(frozen=True, slots=True)
class SliceHealth:
    """One slice as the proxy sees it.

    Attributes:
        incarnation: Whose data counts; 0 while the slice is dead.
        error: What arrays on a dead slice are; None while its data counts.
        held: Its data counts, but nothing may begin to use it: it is on its way to a file, in one,
            or on its way back.
        absent: What arrays on it are for whoever has no data in its files; None while the slice is
            the same for all.
    """

    incarnation: int
    error: Status | None
    held: bool = False
    absent: Status | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Health:
    """All slices at one moment. Compared by identity."""

    slices: tuple[SliceHealth, ...]
    held: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        held = frozenset(index for index, now in enumerate(self.slices) if now.held)
        object.__setattr__(self, "held", held)

    def incarnations(self, slices: Iterable[int]) -> tuple[tuple[int, int], ...]:
        """What an array on these slices must remember, to know later whether it is lost."""
        return tuple((index, self.slices[index].incarnation) for index in slices)

    def dead(self, slices: Iterable[int]) -> Status | None:
        """The error of the first dead one of these slices."""
        for index in slices:
            error = self.slices[index].error
            if error is not None:
                return error
        return None

    def error_of(self, slices: Iterable[int]) -> Status | None:
        """The error of a new array on these slices: that of the first dead one.

        Raises:
            NotYet: None is dead, but one is held.
        """
        error = self.dead(slices)
        if error is None and not self.held.isdisjoint(slices):
            raise NotYet
        return error

    def loss_of(self, incarnations: Iterable[tuple[int, int]]) -> Status | None:
        """The error of an array with these incarnations; None if its data still counts."""
        for index, incarnation in incarnations:
            now = self.slices[index]
            if now.error is not None:
                return now.error
            if now.incarnation != incarnation:
                return lost(
                    index, f"its data was lost when it restarted (incarnation {now.incarnation})"
                )
        return None

    def for_owner_of(self, saved_on: Collection[int]) -> "Health":
        """The same for whoever has data in the files of these slices only.

        A slice is worth waiting for as long as it has something that counts. To others it is dead.
        """
        slices = tuple(
            now if now.absent is None or index in saved_on else SliceHealth(0, now.absent)
            for index, now in enumerate(self.slices)
        )
        return self if slices == self.slices else Health(slices)

    def losing(self, index: int, error: Status) -> "Health":
        """The same with one slice dead."""
        slices = list(self.slices)
        slices[index] = SliceHealth(0, error)
        return Health(tuple(slices))


def lost(index: int, reason: str) -> Status:
    """What the data of a slice becomes that is gone."""
    return Status(Code.DATA_LOSS, f"slice {index}: {reason}")
