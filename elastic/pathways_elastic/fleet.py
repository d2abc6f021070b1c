# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The slices of a service as one training program sees them: those in use, and the others."""

import time
from collections.abc import Callable, Sequence, Set

import jax
from pathwaysutils.elastic import elastic

from pathways_elastic import detection
from pathways_elastic.errors import ElasticError, SliceShortageError
from pathways_elastic.events import EventKind
from pathways_elastic.notice_board import NoticeBoard
from pathways_elastic.policy import Options

type Tell = Callable[[EventKind, str], None]
type Mark = tuple[frozenset[int], detection.Witnesses | None]

# How often waiting is told of while nothing changes.
_PROGRESS_S = 30.0


class Fleet:
    """Which slices are in use, whether they are well, and who else is there.

    Slices that are about to go count as not there, unless they are in use.

    Args:
        slices: All slices; devices by slice, both in ascending order.
        options: The manager's.
        board: What the service announces.
        tell: Told while there is waiting to be done.
    """

    def __init__(
        self, slices: detection.Slices, options: Options, board: NoticeBoard, tell: Tell
    ) -> None:
        self.all = slices
        self.good: frozenset[int] = frozenset()
        self._options = options
        self._board = board
        self._tell = tell
        self._witnesses: detection.Witnesses | None = None
        self._liveness = detection.Liveness(slices, options.probe_timeout_s, self._going)
        self._default_device = jax.config.jax_default_device

    @property
    def missing(self) -> frozenset[int]:
        """The slices that are not in use."""
        return frozenset(self.all) - self.good

    @property
    def leaving(self) -> frozenset[int]:
        """The slices in use that are about to go."""
        return self.good & self._board.going.keys()

    @property
    def good_slices(self) -> dict[int, Sequence[jax.Device]]:
        """The slices in use and their devices, both in ascending order."""
        return {index: self.all[index] for index in sorted(self.good)}

    def use(self, slices: frozenset[int]) -> None:
        """Uses these slices from now on, and watches over data on them."""
        chosen = {index: self.all[index] for index in sorted(slices)}
        self._witnesses = detection.Witnesses(chosen, self._options.probe_timeout_s)
        self.good = slices
        self._set_default_device()

    def mark(self) -> Mark:
        """What :meth:`back_to` takes to go on with the slices, and their data, of this moment."""
        return self.good, self._witnesses

    def back_to(self, mark: Mark) -> None:
        """Uses the slices of an earlier moment again."""
        self.good, self._witnesses = mark
        self._set_default_device()

    def _set_default_device(self) -> None:
        """Where JAX puts what nobody has placed: as ever, unless that device is gone."""
        usual = self._default_device or next(iter(self.all.values()))[0]
        gone = getattr(usual, "slice_index", None) in self.missing
        first = next(device for devices in self.good_slices.values() for device in devices)
        jax.config.update("jax_default_device", first if gone else self._default_device)

    def close(self) -> None:
        """Watches over nothing any more."""
        self._witnesses = None
        jax.config.update("jax_default_device", self._default_device)

    def active(self) -> frozenset[int]:
        """The slices that answer now, in use or not, and are not about to go."""
        return detection.active(self.all, self._liveness)

    def intact(self) -> bool:
        """Whether all slices in use have kept their data."""
        witnesses = self._watched()
        return detection.active(self.good_slices, witnesses) >= self.good

    def is_loss(self, error: BaseException) -> bool:
        """Whether an error is the loss of a slice in use."""
        return detection.is_loss(error, self.good_slices, self._watched())

    def _watched(self) -> detection.Witnesses:
        if self._witnesses is None:
            raise ElasticError("this Manager is closed: make another")
        return self._witnesses

    def _going(self) -> Set[int]:
        return self._board.going.keys()

    def after_grace(self, active: frozenset[int]) -> frozenset[int]:
        """The slices that answer once those that were lost had time to return."""
        grace_s = self._options.grace_period_s
        if len(active) >= len(self.good) or not grace_s or self._board.ends:
            return active
        lost = sorted(self.good - active)
        self._tell(EventKind.WAITING_FOR_SLICES, f"giving slices {lost} {grace_s:g} s to return")
        try:
            return self._wait_for(len(self.good), grace_s)
        except TimeoutError:
            return self.active()

    def enough(self, active: frozenset[int]) -> frozenset[int]:
        """The slices that answer once they are as many as needed.

        Raises:
            SliceShortageError: They are not in time, or the service ends.
        """
        wanted, timeout_s = self._options.min_slices, self._options.slices_timeout_s
        _expect_service(self._board)
        if len(active) >= wanted:
            return active
        have = f"slices {sorted(active)} answer, and min_slices is {wanted}"
        self._tell(EventKind.WAITING_FOR_SLICES, f"{have}: waiting for at most {timeout_s:g} s")
        try:
            return self._wait_for(wanted, timeout_s)
        except TimeoutError as error:
            raise SliceShortageError(
                f"there were fewer than {wanted} slices (min_slices) for {timeout_s:g} s "
                f"(slices_timeout_s). {error}"
            ) from None

    def _wait_for(self, count: int, timeout_s: float) -> frozenset[int]:
        progress = _Progress(count, timeout_s, self._board, self._tell)
        checker = detection.Liveness(
            self.all, self._options.probe_timeout_s, self._going, progress.looked
        )
        return frozenset(
            elastic.wait_for_slices(
                slice_count=count,
                poll_interval=self._options.poll_interval_s,
                timeout=timeout_s,
                slice_to_devices=self.all,
                checker=checker,
            )
        )


def _expect_service(board: NoticeBoard) -> None:
    if board.ends is not None:
        raise SliceShortageError(
            f"the service ends: {board.ends}. No slice comes back, and those that are left go too"
        )


class _Progress:
    """Tells how far waiting has come: when that changes, and from time to time."""

    def __init__(self, count: int, timeout_s: float, board: NoticeBoard, tell: Tell) -> None:
        self._count = count
        self._timeout_s = timeout_s
        self._board = board
        self._tell = tell
        self._began = self._told_at = time.monotonic()
        self._told: Set[int] | None = None

    def looked(self, found: Set[int]) -> None:
        """Raises SliceShortageError if more will never come."""
        if len(found) >= self._count:
            return
        _expect_service(self._board)
        have = f"slices {sorted(found)} answer of the {self._count} that are waited for"
        now = time.monotonic()
        # The first look finds what was told when waiting began.
        if self._told not in (None, found) or now - self._told_at > _PROGRESS_S:
            past = f"{now - self._began:.0f} of at most {self._timeout_s:g} s have passed"
            self._tell(EventKind.WAITING_FOR_SLICES, f"{have}; {past}")
            self._told_at = now
        self._told = found
