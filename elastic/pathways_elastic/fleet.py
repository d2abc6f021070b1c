# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The slices of a service as one training program sees them: those in use, and the others."""

from collections.abc import Callable, Sequence

import jax
from pathwaysutils.elastic import elastic

from pathways_elastic import detection
from pathways_elastic.errors import ElasticError, SliceShortageError
from pathways_elastic.events import EventKind
from pathways_elastic.policy import Options

type Tell = Callable[[EventKind, str], None]
type Mark = tuple[frozenset[int], detection.Witnesses | None]


class Fleet:
    """Which slices are in use, whether they are well, and who else is there.

    Args:
        slices: All slices; devices by slice, both in ascending order.
        options: The manager's.
        tell: Told when there is waiting to be done.
    """

    def __init__(self, slices: detection.Slices, options: Options, tell: Tell) -> None:
        self.all = slices
        self.good: frozenset[int] = frozenset()
        self._options = options
        self._tell = tell
        self._witnesses: detection.Witnesses | None = None
        self._liveness = detection.Liveness(slices, options.probe_timeout_s)
        self._default_device = jax.config.jax_default_device

    @property
    def missing(self) -> frozenset[int]:
        """The slices that are not in use."""
        return frozenset(self.all) - self.good

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
        """The slices that answer now, in use or not."""
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

    def after_grace(self, active: frozenset[int]) -> frozenset[int]:
        """The slices that answer once those that were lost had time to return."""
        grace_s = self._options.grace_period_s
        if len(active) >= len(self.good) or not grace_s:
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
            SliceShortageError: They are not in time.
        """
        wanted, timeout_s = self._options.min_slices, self._options.slices_timeout_s
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
        return frozenset(
            elastic.wait_for_slices(
                slice_count=count,
                poll_interval=self._options.poll_interval_s,
                timeout=timeout_s,
                slice_to_devices=self.all,
                checker=self._liveness,
            )
        )
