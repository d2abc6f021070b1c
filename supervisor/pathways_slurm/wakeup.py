# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Waiting until the next look, or until there is something to look at."""

import contextlib
import os
import selectors
import signal
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Self

_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

# Between two questions whether there is something new. Files on other machines' behalf: a shared
# file system tells nobody of a change that another machine made.
_ASK_AGAIN_S = 0.1


class Wakeup:
    """A context in which stop signals, and the end of one watched process, interrupt the wait.

    ``stop_reason`` is "" until the service is asked to end. Later signals change nothing: ending is
    under way already.
    """

    def __init__(self, root_pidfd: int | None = None) -> None:
        """``root_pidfd``: of the process whose end ends the service."""
        self.stop_reason = ""
        self._root = root_pidfd
        self._stack = contextlib.ExitStack()
        self._selector = selectors.DefaultSelector()

    def __enter__(self) -> Self:
        self._stack.enter_context(self._selector)
        read_end, write_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._stack.callback(os.close, read_end)
        self._stack.callback(os.close, write_end)
        self._pipe = read_end
        self._selector.register(read_end, selectors.EVENT_READ)
        if self._root is not None:
            self._selector.register(self._root, selectors.EVENT_READ)
        self._stack.callback(signal.set_wakeup_fd, signal.set_wakeup_fd(write_end))
        for number in _STOP_SIGNALS:
            self._stack.callback(signal.signal, number, signal.signal(number, self._on_signal))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def wait(self, seconds: float, anything_new: Callable[[], bool] = lambda: False) -> None:
        """Returns after ``seconds``, or as soon as the service is asked to end.

        Args:
            seconds: At most.
            anything_new: Asked now and then; ends the wait as well.
        """
        deadline = time.monotonic() + seconds
        while True:
            left = max(0.0, deadline - time.monotonic())
            if self._interrupted(min(left, _ASK_AGAIN_S)) or left <= _ASK_AGAIN_S or anything_new():
                return

    def _interrupted(self, seconds: float) -> bool:
        events = self._selector.select(seconds)
        for key, _ in events:
            if key.fd == self._root:
                self.stop_reason = self.stop_reason or "the process that it belongs to has ended"
                # It stays readable from now on; the reason above is all there is to learn.
                self._selector.unregister(key.fd)
            else:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._pipe, 4096)
        return bool(events)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del frame
        self.stop_reason = self.stop_reason or f"asked to by {signal.Signals(number).name}"
