# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The slices' states, and the work that they ask for: saving, releasing, restoring."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from pathways_emulator.membership import Membership
from pathways_emulator.proxy import slice_state, suspension
from pathways_emulator.proxy.arrays import Away
from pathways_emulator.proxy.devices import DeviceTable
from pathways_emulator.proxy.executor import Executor, Value
from pathways_emulator.proxy.health import Health, lost
from pathways_emulator.proxy.memory import release_unused
from pathways_emulator.proxy.scratch import Scratch
from pathways_emulator.proxy.session import Session
from pathways_emulator.proxy.shard_file import ShardFile
from pathways_emulator.proxy.slice_jobs import SliceJobs
from pathways_emulator.proxy.slice_state import (
    Down,
    Restoring,
    Saving,
    SliceState,
    Suspended,
    Up,
)
from pathways_emulator.proxy.status import Code, Status
from pathways_emulator.proxy.suspension import UnsavedError

_log = logging.getLogger(__name__)


# For programs to wait for something and see why their session has ended.
_LINGER_S = 3.0

# How often a wait looks whether it still makes sense.
_LOOK_S = 0.05

# At the end: for the removal of files, at least.
_END_S = 1.0

# Between attempts to tell the resource manager something.
_RETRY_S = 1.0


@dataclass(frozen=True, slots=True)
class Policy:
    """What becomes of slices that go.

    Attributes:
        suspends: Whether a notice makes a slice be suspended; if not, it is used until its end.
        lost_at_most: How many slices may be lost without ending the sessions.
    """

    suspends: bool
    lost_at_most: int


# Tells the resource manager that nothing keeps this incarnation of a slice any more, and why. What
# it raises means that it could not be told.
type Release = Callable[[int, int, str], None]


class _SupersededError(Exception):
    """The state has changed, and with it what there is to do."""


class Slices:
    """All slices: follows membership, and keeps the data of those that go and return.

    One thread per slice at most does what takes long; what it has done counts only if the slice is
    still in the state that asked for it. Locks are taken in one order: this class's, then that of
    the list of sessions, then a session's.

    Args:
        membership: The first snapshot.
        policy: What becomes of slices that go.
        devices: Of all slices.
        executor: Has the data.
        scratch: Where saved data is kept.
        release: May take long; tried again as long as it raises.
        sessions: Gives those that are open.
    """

    def __init__(
        self,
        membership: Membership,
        policy: Policy,
        devices: DeviceTable,
        executor: Executor,
        scratch: Scratch,
        release: Release,
        sessions: Callable[[], Sequence[Session]],
    ) -> None:
        self._policy = policy
        self._executor = executor
        self._scratch = scratch
        self._release = release
        self._sessions = sessions
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._states = slice_state.first_states(
            membership, suspends=policy.suspends, now_s=time.monotonic()
        )
        self._health = slice_state.health_of(self._states)
        self._jobs = tuple(
            SliceJobs(index, devices.of_slice(index), executor, scratch)
            for index in range(devices.slice_count)
        )
        # By slice and session: what is in files.
        self._files: dict[int, dict[int, ShardFile]] = {}
        # By slice: folders with files that nobody needs any more.
        self._garbage: dict[int, list[str]] = {}
        self._workers: dict[int, threading.Thread] = {}
        # What a proxy that was killed has left. Not here: a bucket may take long to answer.
        self._cleaning = self._remove_all()
        for index, state in enumerate(self._states):
            if not isinstance(state, Down):
                _log.info("%s", slice_state.describe(index, state))
            self._start_worker(index)

    @property
    def health(self) -> Health:
        """Of all slices, now."""
        return self._health

    def on_membership(self, membership: Membership) -> None:
        """Applies a snapshot; quick, whatever is under way."""
        with self._lock:
            self._enter(
                slice_state.next_states(
                    self._states,
                    membership,
                    suspends=self._policy.suspends,
                    now_s=time.monotonic(),
                )
            )

    def forget(self, session_id: int) -> None:
        """Removes what was saved of a session that has been closed."""
        with self._lock:
            files = [
                of_slice.pop(session_id)
                for of_slice in self._files.values()
                if session_id in of_slice
            ]
        for file in files:
            self._remove(file.name)

    def close(self, timeout_s: float) -> None:
        """Ends all work, and removes what was saved."""
        with self._lock:
            self._ended.set()
            workers = list(self._workers.values())
        deadline_s = time.monotonic() + timeout_s
        for worker in workers:
            worker.join(max(0.0, deadline_s - time.monotonic()))
        self._remove_all().join(max(_END_S, deadline_s - time.monotonic()))

    def _enter(self, states: Iterable[SliceState]) -> None:
        """Changes states, and applies what follows for data; under the lock."""
        before, after = self._states, tuple(states)
        changed = [i for i, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
        if not changed:
            return
        self._states = after
        for index in changed:
            new = slice_state.describe(index, after[index])
            if new != slice_state.describe(index, before[index]):
                _log.info("%s", new)
        self._check_losses(slice_state.all_lost(before))
        health = slice_state.health_of(after)
        if health.slices != self._health.slices:
            # A session that is opened from now on begins with this health.
            self._health = health
            for session in self._sessions():
                session.on_health(health)
        for index in changed:
            kept = slice_state.kept(before[index])
            if kept is not None and kept != slice_state.kept(after[index]):
                self._files.pop(index, None)
                self._garbage.setdefault(index, []).append(self._jobs[index].folder(kept))
            self._start_worker(index)

    def _enter_one(self, index: int, state: SliceState) -> None:
        self._enter((*self._states[:index], state, *self._states[index + 1 :]))

    def _check_losses(self, lost_before: frozenset[int]) -> None:
        lost_now, limit = slice_state.all_lost(self._states), self._policy.lost_at_most
        if not slice_state.too_many_lost(lost_before, lost_now, limit):
            return
        names = ", ".join(str(index) for index in sorted(lost_now))
        message = (
            f"slices {names} are lost: {len(lost_now)} at once, and "
            f"--num_elastic_instances={limit} is how many may be"
        )
        _log.error("%s; all sessions end", message)
        for session in self._sessions():
            session.hang_up(Status(Code.UNAVAILABLE, message), _LINGER_S)

    def _start_worker(self, index: int) -> None:
        if index in self._workers or self._ended.is_set():
            return
        if slice_state.asks_for_work(self._states[index]) or index in self._garbage:
            worker = threading.Thread(
                target=self._work, args=(index,), name=f"slice-{index}", daemon=True
            )
            self._workers[index] = worker
            worker.start()

    def _work(self, index: int) -> None:
        while True:
            with self._lock:
                garbage = self._garbage.pop(index, [])
                state = self._states[index]
                if self._ended.is_set() or not (garbage or slice_state.asks_for_work(state)):
                    del self._workers[index]
                    return
            for name in garbage:
                self._remove(name)
            match state:
                case Saving():
                    self._save(index, state)
                case Restoring():
                    self._restore(index, state)
                case Suspended(_, going, True):
                    self._tell(index, state, going, "what the slice computes with is saved")
                case Down(error, written_off, True, empty):
                    reason = slice_state.NOTHING_TO_SAVE if empty else error.message
                    self._tell(index, state, written_off, reason)

    def _save(self, index: int, state: Saving) -> None:
        jobs = self._jobs[index]

        def check() -> None:
            self._require(index, state)
            if time.monotonic() > state.deadline_s:
                raise UnsavedError("the notice did not leave enough time")

        start_s = time.monotonic()
        try:
            while self._cleaning.is_alive():
                check()
                self._cleaning.join(_LOOK_S)
            check()
            saved = jobs.save(state.incarnation, self._to_save(index), state.deadline_s, check)
        except _SupersededError:
            return
        except Exception as error:
            reason = jobs.why(error)
            with self._lock:
                if self._is_current(index, state):
                    self._enter_one(index, slice_state.given_up(state, index, reason))
            return
        with self._lock:
            if not self._is_current(index, state):
                return
            open_now = set(self._sessions())
            for session in open_now:
                parts = saved[session].outgoing.parts if session in saved else {}
                session.arrays.suspend(index, parts)
            files = {session.id: of.file for session, of in saved.items() if session in open_now}
            self._files[index] = files
            self._enter_one(index, slice_state.saved(state, index, files=len(files)))
        for name in [of.file.name for session, of in saved.items() if session not in open_now]:
            self._remove(name)
        count = len(saved)
        # The last references to the data.
        saved.clear()
        parts = {}
        release_unused()
        if count:
            took_s = time.monotonic() - start_s
            _log.info("slice %d: saved for %d sessions in %.1f s", index, count, took_s)

    def _to_save(self, index: int) -> list[Session]:
        """The sessions that can be restored; what others have on the slice is lost now."""
        result = []
        with self._lock:
            for session in self._sessions():
                reason = slice_state.why_not_kept(session.stateful)
                if reason is None:
                    result.append(session)
                else:
                    why = f"it is about to go, and {reason}"
                    self._lose(session, index, why, self._health)
        return result

    def _restore(self, index: int, state: Restoring) -> None:
        jobs = self._jobs[index]
        check = partial(self._require, index, state)
        with self._lock:
            files = dict(self._files.get(index, {}))
        shards: dict[int, dict[Away, Value]] = {}
        damaged: dict[int, str] = {}
        for session in self._sessions():
            if session.id not in files:
                continue
            try:
                shards[session.id] = jobs.load(session, files[session.id], check)
            except _SupersededError:
                return
            except Exception as error:
                damaged[session.id] = str(error)
        with self._lock:
            if not self._is_current(index, state):
                return
            up = Up(state.target)
            health = slice_state.health_of((*self._states[:index], up, *self._states[index + 1 :]))
            join = partial(suspension.join, self._executor)
            for session in self._sessions():
                if session.id in damaged:
                    self._lose(session, index, damaged[session.id], health)
                session.restore(index, state.target, shards.get(session.id, {}), join, health)
            self._enter_one(index, up)

    def _tell(self, index: int, state: SliceState, incarnation: int, reason: str) -> None:
        try:
            self._release(index, incarnation, reason)
        except Exception as error:
            # It may be restarting. Workers that got a notice end by themselves, so it is enough to
            # try as long as nothing else is to be done for this slice.
            _log.warning("slice %d can't be released: %s", index, error)
            self._ended.wait(_RETRY_S)
            return
        _log.info("released slice %d (incarnation %d)", index, incarnation)
        with self._lock:
            if self._is_current(index, state):
                self._enter_one(index, slice_state.released(state))

    def _lose(self, session: Session, index: int, reason: str, following: Health) -> None:
        """Turns what one session has on a slice into errors; under the lock."""
        error = lost(index, reason)
        _log.warning("session %d: %s", session.id, error.message)
        session.on_health(self._health.losing(index, error), following)

    def _is_current(self, index: int, state: SliceState) -> bool:
        return self._states[index] is state and not self._ended.is_set()

    def _require(self, index: int, state: SliceState) -> None:
        if not self._is_current(index, state):
            raise _SupersededError

    def _remove_all(self) -> threading.Thread:
        """Begins to remove all files; the thread ends when it has."""

        def remove() -> None:
            if self._policy.suspends:
                self._remove("")

        thread = threading.Thread(target=remove, name="scratch-cleaning", daemon=True)
        thread.start()
        return thread

    def _remove(self, name: str) -> None:
        try:
            self._scratch.remove(name)
        except Exception as error:
            _log.warning("can't remove %s: %s", self._scratch.place(name), error)
