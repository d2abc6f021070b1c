# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What a manager tells: one record for each thing that happened, to the log and to a callback."""

import logging
import time
from collections.abc import Callable, Set
from dataclasses import dataclass
from enum import StrEnum

_log = logging.getLogger("pathways_elastic")


class EventKind(StrEnum):
    """What happened."""

    SLICES_LOST = "SlicesLost"
    """A loss was recognised and counted; handling it begins."""
    SLICES_GOING = "SlicesGoing"
    """Slices in use are about to go, after notice; leaving them begins."""
    SLICES_BACK = "SlicesBack"
    """Slices that were missing answer; handling that begins."""
    WAITING_FOR_SLICES = "WaitingForSlices"
    """There are too few, or those that were lost are given time to return. Told again and again."""
    ATTEMPT_FAILED = "AttemptFailed"
    """A slice was lost while the handler ran."""
    RESHARDED_DOWN = "ReshardedDown"
    """The handler is done after a loss, or after a notice."""
    RESHARDED_UP = "ReshardedUp"
    """The handler is done after a return."""
    RESHARD_UP_GIVEN_UP = "ReshardUpGivenUp"
    """Nothing was gained, or left in time; training goes on as before."""
    SNAPSHOT_LOST = "SnapshotLost"
    """A snapshot went with its slices, or did not become whole."""


_QUIET = frozenset({EventKind.SLICES_BACK, EventKind.RESHARDED_DOWN, EventKind.RESHARDED_UP})


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened.

    Attributes:
        kind: What.
        reason: Why, as a sentence.
        good: Slices in use from now on.
        missing: Slices that are not.
        step: The training step it concerns: of a snapshot that was handed out, or of the call.
        seconds: Since handling the event began.
    """

    kind: EventKind
    reason: str
    good: Set[int]
    missing: Set[int]
    step: int | None = None
    seconds: float = 0.0


type OnEvent = Callable[[Event], None]


def tell(event: Event, on_event: OnEvent | None) -> None:
    """Logs the event and calls the callback, whose failure is logged and changes nothing."""
    level = logging.INFO if event.kind in _QUIET else logging.WARNING
    _log.log(level, "%s: %s", event.kind, event.reason)
    if on_event is None:
        return
    try:
        on_event(event)
    except Exception:
        # Recovery is worth more than being told about it.
        _log.exception("the callback for events failed at %s", event.kind)


class Journal:
    """Tells of what happens together with the slices of that moment.

    Args:
        on_event: Told as well.
        slices: Those in use, and those that are not.
    """

    def __init__(
        self, on_event: OnEvent | None, slices: Callable[[], tuple[Set[int], Set[int]]]
    ) -> None:
        self._on_event = on_event
        self._slices = slices
        self.begin()

    def begin(self) -> None:
        """What is told from now on has this as its beginning."""
        self._began = time.monotonic()

    def tell(self, kind: EventKind, reason: str, step: int | None = None) -> None:
        """Tells of one thing; see :class:`Event`."""
        good, missing = self._slices()
        event = Event(kind, reason, good, missing, step, time.monotonic() - self._began)
        tell(event, self._on_event)


def first_line(error: BaseException) -> str:
    """What an error says; the runtime's own stack traces, which may follow, say nothing here."""
    return str(error).partition("\n")[0] or type(error).__name__
