# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The decisions: when to take a snapshot, what counts, which snapshot is next. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pathways_elastic.errors import DownEventLimitError

MIN_SLICES_VARIABLE = "PATHWAYS_MIN_SLICES"
"""Of cluster.env: the number of slices below which the service is not there."""


@dataclass(frozen=True, slots=True)
class Options:
    """How a manager behaves; see :class:`~pathways_elastic.manager.Manager` for each.

    Raises:
        ValueError: With every fault.
    """

    snapshot_period: int
    snapshot_buffer_size: int
    reshard_check_period: int
    max_elastic_down_event_count: int
    max_reshard_retry_count: int
    min_slices: int
    grace_period_s: float
    slices_timeout_s: float
    poll_interval_s: float
    probe_timeout_s: float
    handler_timeout_s: float

    def __post_init__(self) -> None:
        least = {
            "snapshot_period": 1,
            "snapshot_buffer_size": 1,
            "reshard_check_period": 1,
            "max_elastic_down_event_count": 0,
            "max_reshard_retry_count": 0,
            "min_slices": 1,
        }
        faults = [
            f"{name} must be an integer >= {minimum}, got {value!r}"
            for name, minimum in least.items()
            if not is_count(value := getattr(self, name), minimum)
        ]
        if not 0 <= self.grace_period_s < math.inf:
            faults.append(f"grace_period_s must be >= 0 and finite, got {self.grace_period_s!r}")
        faults += [
            f"{name} must be > 0 and finite, got {value!r}"
            for name in (
                *("slices_timeout_s", "poll_interval_s"),
                *("probe_timeout_s", "handler_timeout_s"),
            )
            if not 0 < (value := getattr(self, name)) < math.inf
        ]
        if faults:
            raise ValueError("; ".join(faults))


def is_count(value: object, minimum: int) -> bool:
    """Whether it is an int, and no bool, of at least ``minimum``."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= minimum


def min_slices_of(environment: Mapping[str, str]) -> int:
    """What cluster.env says; 1 if it was not read.

    Raises:
        ValueError: It is no whole number from 1.
    """
    text = environment.get(MIN_SLICES_VARIABLE, "1")
    if not (text.isascii() and text.isdigit() and int(text) >= 1):
        raise ValueError(
            f"{MIN_SLICES_VARIABLE} must be a whole number from 1, got {text!r}: correct the "
            "environment, or give min_slices"
        )
    return int(text)


def snapshot_is_due(step: int, period: int, latest: int | None) -> bool:
    """Whether this step's state is to be kept.

    The first one is, whatever its number: before it, a loss would cost the whole run.

    Args:
        step: The step that has been taken.
        period: Steps between snapshots.
        latest: Step of the latest snapshot, taken or handed out.
    """
    return latest is None or (step % period == 0 and step != latest)


def with_new(steps: Sequence[int], new: int, size: int) -> list[int]:
    """Which snapshots to keep, newest first, once one of step ``new`` is whole.

    Those of later steps are of a future that was given up.
    """
    return [new, *(step for step in steps if step < new)][:size]


def next_to_hand_out(steps: Sequence[int], handed: Sequence[int]) -> int | None:
    """The step of the snapshot that is next: newest first, and when all were tried, again.

    Args:
        steps: Of the snapshots there are, newest first.
        handed: Of those handed out during this event, in order.
    """
    if not steps:
        return None
    tries = {step: handed.count(step) for step in steps}
    fewest = min(tries.values())
    return next(step for step in steps if tries[step] == fewest)


@dataclass(frozen=True, slots=True)
class DownEvents:
    """The down events that were counted, and how many may be."""

    limit: int
    count: int = 0

    def one_more(self) -> "DownEvents":
        """Counts one.

        Raises:
            DownEventLimitError: ``limit`` of them were counted already.
        """
        if self.count >= self.limit:
            raise DownEventLimitError(
                f"slices were lost for the {_ordinal(self.count + 1)} time, and "
                f"max_elastic_down_event_count is {self.limit}: give a greater one if the losses "
                "are not the program's fault"
            )
        return DownEvents(self.limit, self.count + 1)


def _ordinal(number: int) -> str:
    suffix = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{'th' if 10 <= number % 100 <= 20 else suffix}"
