# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Hears of SIGTERM, and lets the program's own handler hear of it too."""

import logging
import signal
import threading
from collections.abc import Callable
from types import FrameType

_log = logging.getLogger("pathways_elastic")

type _Handler = Callable[[int, FrameType | None], object] | int | None


class SigtermHandler:
    """In the place of the process's handler for SIGTERM, which is called afterwards.

    Args:
        heard: Called at each SIGTERM, in the main thread, between any two of its instructions: it
            must take no lock.
    """

    def __init__(self, heard: Callable[[], None]) -> None:
        self._heard = heard
        self._chained: _Handler = signal.SIG_DFL
        self._handling = False

    def install(self) -> bool:
        """Takes the place; False if this is not the main thread, which alone may."""
        if threading.current_thread() is not threading.main_thread():
            return False
        self._take_place()
        return True

    def keep(self) -> None:
        """Takes the place again if the program has put another handler there since."""
        if (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGTERM) != self._handle
        ):
            self._take_place()
            _log.warning(
                "autocheckpoint: the handler for SIGTERM that was installed after it would have "
                "kept the signal for itself; now both get it"
            )

    def remove(self) -> None:
        """Gives the place back, unless another handler has it; that then goes on calling this."""
        if signal.getsignal(signal.SIGTERM) == self._handle:
            # None is a handler that Python has not set, and can't set again.
            signal.signal(
                signal.SIGTERM, signal.SIG_DFL if self._chained is None else self._chained
            )

    def _take_place(self) -> None:
        self._chained = signal.signal(signal.SIGTERM, self._handle)
        if self._chained is None:
            _log.warning(
                "autocheckpoint: SIGTERM had a handler that Python does not know; it is not called "
                "any more"
            )

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._heard()
        # The chained one may chain this one in turn.
        if callable(self._chained) and not self._handling:
            self._handling = True
            try:
                self._chained(number, frame)
            finally:
                self._handling = False
