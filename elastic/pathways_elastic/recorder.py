# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Takes snapshots behind the training loop's back, and keeps the last ones that became whole."""

import logging
import queue
import threading
from collections.abc import Callable, Set
from functools import partial
from typing import Any

from pathways_elastic import policy, snapshots
from pathways_elastic.events import first_line
from pathways_elastic.snapshots import Snapshot, Staged

_log = logging.getLogger("pathways_elastic")


class _Job:
    """A snapshot that is not whole yet."""

    def __init__(self, staged: Staged) -> None:
        self.staged: Staged | None = staged
        self.step = staged.step
        self.done = threading.Event()
        self.dropped = False


class _Kept:
    """A snapshot that became whole, wherever its copies are now."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot


class Recorder:
    """The buffer of snapshots, and the thread that fills it.

    What is kept is replaced in one assignment, so whatever interrupts a call, what was whole before
    is there after it.

    Args:
        size: How many whole snapshots to keep; one in the making comes on top.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._kept: tuple[_Kept, ...] = ()
        # The step of the snapshot that was taken, or handed out, last.
        self.latest: int | None = None
        self._lock = threading.Lock()
        self._job: _Job | None = None
        self._failure: Exception | None = None
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    @property
    def whole(self) -> tuple[Snapshot, ...]:
        """Those that can be restored, newest first."""
        return tuple(kept.snapshot for kept in self._kept)

    @property
    def failed(self) -> bool:
        """Whether :meth:`raise_failure` would raise."""
        return self._failure is not None

    def raise_failure(self) -> None:
        """Raises what made a snapshot fail, once: most likely the state it was to keep is lost."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def record(self, step: int, state: Any) -> None:
        """Dispatches the copies of a state and returns; the one before is waited for.

        Raises:
            SnapshotError: It can't be kept.
            Exception: What made the one before fail.
        """
        self.wait()
        self.raise_failure()
        job = _Job(snapshots.stage(step, state))
        self._start_thread()
        self._work.put(lambda: self._finish(job))
        # Last: a job that is waited for is one that will be done, whatever interrupts this.
        self._job = job
        self.latest = step

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until no snapshot is in the making; returns whether that is so."""
        job = self._job
        if job is not None and not job.done.wait(timeout_s):
            return False
        self._job = None
        return True

    def settle(self, timeout_s: float) -> None:
        """After a loss: what is in the making becomes whole in time, or never."""
        if not self.wait(timeout_s) and (job := self._job) is not None:
            with self._lock:
                job.dropped = True
            self._job = None
        self._failure = None

    def keep(self, slices: Set[int]) -> list[int]:
        """Lets go of copies that are not on these slices; returns the steps that this costs."""
        # Asks the slices, so outside of the lock; what is moved to the client meanwhile needs none.
        found = [(kept, kept.snapshot) for kept in self._kept]
        left = [snapshot.kept_on(slices) for _, snapshot in found]
        lost: list[_Kept] = []
        with self._lock:
            for (kept, before), after in zip(found, left, strict=True):
                if kept.snapshot is not before:
                    continue
                if after is None:
                    lost.append(kept)
                else:
                    kept.snapshot = after
            self._kept = tuple(kept for kept in self._kept if kept not in lost)
        return [kept.snapshot.step for kept in lost]

    def leave(self, slices: Set[int]) -> None:
        """Copies to this process's memory, and waits for it, what would not be whole without."""
        for kept in self._kept:
            if not kept.snapshot.whole_without(slices):
                self._move(kept)

    def secure(self) -> None:
        """Starts to copy snapshots that one more loss could take to this process's memory."""
        for kept in self._kept:
            if not kept.snapshot.safe:
                self._start_thread()
                self._work.put(partial(self._move, kept))

    def close(self) -> None:
        """Ends the thread and forgets everything."""
        with self._lock:
            if self._job is not None:
                self._job.dropped = True
            self._kept = ()
        self._job = self._failure = None
        if self._thread is not None:
            self._work.put(None)
            # It may be waiting for a slice that does not answer.
            self._thread.join(1.0)
            self._thread = None

    def _start_thread(self) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="elastic-snapshots", daemon=True)
            thread.start()
            self._thread = thread

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()
            # What it holds must not live until there is more to do.
            del work

    def _finish(self, job: _Job) -> None:
        staged, job.staged = job.staged, None
        try:
            if staged is not None and not job.dropped:
                self._add(staged.collect(), job)
        except Exception as error:
            with self._lock:
                if not job.dropped:
                    self._failure = error.with_traceback(None)
            _log.warning(
                "the snapshot of step %d did not become whole: %s", job.step, first_line(error)
            )
        finally:
            job.done.set()

    def _add(self, snapshot: Snapshot, job: _Job) -> None:
        with self._lock:
            if job.dropped:
                return
            by_step = {kept.snapshot.step: kept for kept in self._kept}
            steps = policy.with_new(list(by_step), snapshot.step, self._size)
            by_step[snapshot.step] = _Kept(snapshot)
            self._kept = tuple(by_step[step] for step in steps)

    def _move(self, kept: _Kept) -> None:
        snapshot = kept.snapshot
        try:
            moved = snapshot.to_client()
        except Exception as error:
            _log.warning(
                "the snapshot of step %d could not be copied to the client: %s",
                snapshot.step,
                first_line(error),
            )
            return
        # Whichever of its copies on slices were let go meanwhile, this one is whole.
        with self._lock:
            kept.snapshot = moved
