# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""A time limit for code of somebody else's that runs in this thread."""

import contextlib
import logging
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from types import FrameType

from pathways_elastic.errors import HandlerTimeoutError

_log = logging.getLogger("pathways_elastic")

# Interrupts waits for locks and sleeps, which an exception set from another thread would not. The
# last real-time signal is one that hardly anybody uses.
_SIGNAL = signal.SIGRTMAX


@contextlib.contextmanager
def limited(seconds: float, what: str) -> Iterator[None]:
    """Raises in the block when it has taken too long.

    Only Python code in the main thread can be interrupted. Elsewhere, and while JAX waits for a
    device, the place where it hangs is logged and the block goes on.

    Args:
        seconds: The limit.
        what: Who is limited, for the message.

    Raises:
        HandlerTimeoutError: The limit has passed.
    """
    thread = threading.current_thread()
    message = f"{what} has taken longer than {seconds:g} s (handler_timeout_s)"
    interruptible = (
        thread is threading.main_thread() and signal.getsignal(_SIGNAL) is signal.SIG_DFL
    )
    done = threading.Event()

    def watch() -> None:
        if done.wait(seconds):
            return
        stack = "".join(traceback.format_stack(sys._current_frames().get(thread.ident or 0)))
        _log.error("%s. It is here:\n%s", message, stack)
        if interruptible and thread.ident is not None:
            signal.pthread_kill(thread.ident, _SIGNAL)

    def interrupt(_signum: int, _frame: FrameType | None) -> None:
        # The block may have ended between the watcher's look and the signal's arrival.
        if not done.is_set():
            raise HandlerTimeoutError(message)

    if interruptible:
        signal.signal(_SIGNAL, interrupt)
    watcher = threading.Thread(target=watch, name="elastic-deadline", daemon=True)
    try:
        watcher.start()
        yield
    finally:
        done.set()
        try:
            # A signal on its way must not meet the default action, which ends the process.
            watcher.join()
        finally:
            if interruptible:
                signal.signal(_SIGNAL, signal.SIG_DFL)
