# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Saves a checkpoint before the slices, or the program, have to go; docs/autocheckpoint.md.

Off unless ``connect(autocheckpoint=True)`` or ``ENABLE_AUTOCHECKPOINT=true`` says so. Then any
``CheckpointManager.save(step, …)`` of Orbax, called after each step as always, saves the next step
after SIGTERM or a notice of the service, whatever its schedule, and returns once it is committed.
"""

import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

from pathways_elastic import autocheckpoint_slurm
from pathways_elastic.autocheckpoint_latch import EXIT_NOT_SAVED, EXIT_SAVED, Latch, Phase
from pathways_elastic.autocheckpoint_options import Options
from pathways_elastic.autocheckpoint_signal import SigtermHandler
from pathways_elastic.errors import ElasticError
from pathways_elastic.notice_board import NoticeBoard, Source
from pathways_slurm import notices

if TYPE_CHECKING:
    from orbax.checkpoint import CheckpointManager

__all__ = [
    "EXIT_NOT_SAVED",
    "EXIT_SAVED",
    "Autocheckpoint",
    "AutocheckpointPolicy",
    "Options",
    "current",
    "disable",
    "enable",
]

_log = logging.getLogger("pathways_elastic")

_LOOK_EVERY_S = 0.2
_LOOK_AT_A_SAVE_EVERY_S = 0.02
_FLUSH_S = 1.0


class NotCommittedError(ElasticError):
    """Orbax reported no error, and the checkpoint is not there."""


class Autocheckpoint:
    """What listens, decides, waits and ends; one to a process.

    Made and ended by :func:`enable` and :func:`disable`.

    Args:
        options: How.
        board: Where notices are.
        answered: (slice, incarnation) of those that are no news.
    """

    def __init__(
        self, options: Options, board: NoticeBoard, answered: Set[tuple[int, int]] = frozenset()
    ) -> None:
        self.options = options
        self._board = board
        # The runs of slices that an earlier program has left: nothing more is to be saved for them.
        self._known: set[object] = set(answered)
        self._latch = Latch(options.timeout_s, options.exit_after)
        self._lock = threading.Lock()
        # Signals come between any two instructions, also while the lock is held. To put something
        # into such a queue is all that is safe then.
        self._requests: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._wakeups: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._handler = SigtermHandler(lambda: self.request("SIGTERM"))
        self._unhook: Callable[[], None] = lambda: None
        self._thread = threading.Thread(target=self._watch, name="autocheckpoint", daemon=True)

    def start(self) -> None:
        """Begins to listen."""
        from pathways_elastic.autocheckpoint_orbax import hook

        if not self._handler.install():
            _log.warning(
                "autocheckpoint: connect() was not called in the main thread, so only notices are "
                "heard of, and SIGTERM does what it did before"
            )
        self._unhook = hook(self)
        self._thread.start()

    def close(self) -> None:
        """Everything is as it was before."""
        self._unhook()
        self._handler.remove()
        self._wakeups.put(False)
        self._thread.join()
        self._board.close()

    def request(self, reason: str) -> None:
        """Asks for the next step to be saved; may be called in any thread, and in a handler."""
        self._requests.put(reason)
        self._wakeups.put(True)

    @property
    def requested(self) -> bool:
        """Whether the next step is to be saved."""
        return self._now().phase is Phase.ASKED

    def reached(self, step: int) -> bool:
        """Whether this step is the one to be saved, or was; as Orbax' ``reached_preemption``."""
        return self._now().saves(step)

    def keeps(self, step: int) -> bool:
        """Whether this step must not be deleted before there is a later one."""
        return self._now().keeps(step)

    def save(self, manager: "CheckpointManager", step: int, save: Callable[..., bool]) -> bool:
        """Saves the step if it is due, waits until it is committed, and ends if that was asked for.

        Args:
            manager: Orbax'.
            step: That has been taken.
            save: Orbax' own ``save`` for the step; takes ``force``.

        Returns:
            What ``save`` returned.

        Raises:
            SystemExit: The step is committed, and the program is to end.
            NotCommittedError: Orbax said nothing of it, but the checkpoint is not there.
            Exception: What Orbax raised. The next step is tried while there is time.
        """
        from pathways_elastic.autocheckpoint_orbax import can_save, last_committed

        self._handler.keep()
        if self._now().phase is not Phase.ASKED:
            return save()
        due = can_save(manager, step)
        if not due and manager.latest_step() != step:
            _log.warning(
                "autocheckpoint: step %d can't be saved in %s: it is read-only or has a later step",
                step,
                manager.directory,
            )
            return save()
        _log.warning("autocheckpoint: saving step %d; %s", step, last_committed(manager))
        self._change(lambda latch: latch.saving(step))
        try:
            saved = save(force=True) if due else save()
            done = self._await_commit(manager, step)
        except BaseException:
            self._change(Latch.failed)
            raise
        if done:
            self._settle(step)
        return saved

    def _await_commit(self, manager: "CheckpointManager", step: int) -> bool:
        """False once the attempt is over without."""
        from pathways_elastic.autocheckpoint_orbax import is_committed

        while manager.is_saving_in_progress():
            if self._now().phase is not Phase.SAVING:
                return False
            time.sleep(_LOOK_AT_A_SAVE_EVERY_S)
        manager.wait_until_finished()  # raises what went wrong
        if not is_committed(manager, step):
            raise NotCommittedError(f"step {step} is not in {manager.directory} after its save")
        return True

    def _settle(self, step: int) -> None:
        before, after = self._change(lambda latch: latch.committed(time.monotonic()))
        if before.phase is not Phase.SAVING:
            return
        took = time.monotonic() - (before.deadline - before.timeout_s)
        _log.warning("autocheckpoint: step %d is committed, %.1f s after the request", step, took)
        if after.status is None:
            return
        # Nothing uses the slices any more.
        self._board.acknowledge(set(self._board.going))
        if threading.current_thread() is threading.main_thread():
            sys.exit(after.status)
        _end(after.status)

    def _now(self) -> Latch:
        return self._change(lambda latch: latch)[1]

    def _change(self, change: Callable[[Latch], Latch]) -> tuple[Latch, Latch]:
        """The latch with all requests that have come, before and after the change."""
        with self._lock:
            while not self._requests.empty():
                self._latch = self._latch.asked(self._requests.get_nowait(), time.monotonic())
            before, self._latch = self._latch, change(self._latch)
            return before, self._latch

    def _watch(self) -> None:
        """Hears of notices, tells of requests, and ends what takes too long."""
        told: tuple[str, ...] = ()
        while True:
            try:
                if not self._wakeups.get(timeout=_LOOK_EVERY_S):
                    return
            except queue.Empty:
                pass
            self._look_at_notices()
            before, after = self._change(lambda latch: latch.given_up(time.monotonic()))
            _tell_requests(told, before)
            told = before.reasons
            if after.phase is not before.phase:
                _tell_failure(before)
            overdue = after.overdue(time.monotonic())
            # What ends by itself has some time for that; what had its time already has not.
            if after.status is not None and (before.phase is not Phase.ENDING or overdue):
                _end(after.status)

    def _look_at_notices(self) -> None:
        going = {
            (entry.slice, entry.incarnation): (
                f"slice {entry.slice} goes within {max(0.0, entry.deadline - time.time()):.0f} s: "
                f"{entry.reason}"
            )
            for entry in self._board.going.values()
        }
        news: dict[object, str] = dict(going.items())
        if (reason := self._board.ends) is not None:
            news["end"] = f"the service ends: {reason}"
        for entry in news.keys() - self._known:
            self.request(news[entry])
        self._known |= news.keys()


def _tell_requests(told: tuple[str, ...], latch: Latch) -> None:
    """Logs the requests that were not told before."""
    same_attempt = latch.reasons[: len(told)] == told
    for reason in latch.reasons[len(told) if same_attempt else 0 :]:
        _log.warning(
            "autocheckpoint: %s; the next step is saved, within %g s", reason, latch.timeout_s
        )


def _tell_failure(latch: Latch) -> None:
    _log.error(
        "autocheckpoint: %s within %g s (autocheckpoint_timeout_s) of the request: %s",
        "no step was saved" if latch.step is None else f"step {latch.step} was not committed",
        latch.timeout_s,
        latch.reasons[0],
    )


def _end(status: int) -> None:
    """Ends the process at once: what would clean up hangs, or is another thread's."""
    # Whoever hangs may hold a stream's lock.
    flushing = threading.Thread(target=_flush, daemon=True)
    flushing.start()
    flushing.join(_FLUSH_S)
    os._exit(status)


def _flush() -> None:
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()


_current: Autocheckpoint | None = None


def current() -> Autocheckpoint | None:
    """The one of this process; None if autocheckpoint is off."""
    return _current


def enable(options: Options, environ: Mapping[str, str] | None = None) -> Autocheckpoint:
    """Turns autocheckpoint on; what ``connect()`` does.

    Args:
        options: How. Others than before replace these.
        environ: With the variables of cluster.env; the process's own if None.
    """
    global _current
    environ = os.environ if environ is None else environ
    if _current is not None and _current.options == options:
        return _current
    disable()
    source = Source.of(environ)
    _current = Autocheckpoint(options, NoticeBoard(source), _answered(source))
    _current.start()
    if shortfall := autocheckpoint_slurm.shortfall_here(options.timeout_s, environ):
        _log.warning("autocheckpoint: %s", shortfall)
    return _current


def _answered(source: Source) -> frozenset[tuple[int, int]]:
    if source.path is None:
        return frozenset()
    try:
        return notices.acknowledged(source.path.with_name(notices.DIRECTORY))
    except OSError:
        return frozenset()


def disable() -> None:
    """Turns it off, if it is on."""
    global _current
    if _current is not None:
        _current.close()
        _current = None


class AutocheckpointPolicy:
    """A save decision policy for Orbax: the next step after a request, and no other.

    For a ``CheckpointManagerOptions(save_decision_policy=AnySavePolicy([…]))`` of the program's own
    that is to say by itself what is saved. Without it, such a step is saved all the same.
    """

    def should_save(self, step: Any, previous_steps: Sequence[Any], *, context: Any) -> bool:
        """See Orbax' ``SaveDecisionPolicy``."""
        del previous_steps, context
        return _current is not None and _current.reached(step.step)
