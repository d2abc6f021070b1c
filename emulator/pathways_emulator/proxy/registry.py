# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The sessions of a server, and the slices' health that they share."""

import contextlib
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from pathways_emulator.membership import Membership
from pathways_emulator.proxy.devices import DeviceTable
from pathways_emulator.proxy.executor import Executor
from pathways_emulator.proxy.handlers import HANDLERS
from pathways_emulator.proxy.memory import release_unused
from pathways_emulator.proxy.scratch import Scratch
from pathways_emulator.proxy.session import Session
from pathways_emulator.proxy.slices import Policy, Release, Slices
from pathways_emulator.proxy.status import Status

_log = logging.getLogger(__name__)

# Each thread that waits for a computation holds one of these. They are started as needed.
_MAX_WAITING = 128

# For what is being saved or restored when the proxy ends.
_END_TIMEOUT_S = 2.0


class SessionRegistry:
    """Opens, finds and closes sessions. Thread-safe.

    The arguments are those of :class:`Slices`.
    """

    def __init__(
        self,
        executor: Executor,
        devices: DeviceTable,
        membership: Membership,
        policy: Policy,
        scratch: Scratch,
        release: Release,
    ) -> None:
        self._executor = executor
        self._devices = devices
        self._membership = membership
        self._pool = ThreadPoolExecutor(_MAX_WAITING, thread_name_prefix="proxy-wait")
        self._lock = threading.Lock()
        self._sessions: dict[int, Session] = {}
        self._next_id = 1
        self._slices = Slices(
            membership, policy, devices, executor, scratch, release, self._open_sessions
        )

    def open(self, transmit: Callable[[bytes | Status], None]) -> Session:
        """A new session; ``transmit`` sends its replies, or an error that ends the stream."""
        with self._lock:
            session = Session(
                self._next_id,
                HANDLERS,
                self._executor,
                self._devices,
                self._slices.health,
                self._pool,
                transmit,
            )
            self._next_id += 1
            self._sessions[session.id] = session
        _log.info("session %d opened", session.id)
        return session

    def find(self, session_id: int) -> Session | None:
        """The open session with this id."""
        return self._sessions.get(session_id)

    def close(self, session: Session) -> None:
        """Ends a session and frees all it owns."""
        with self._lock:
            self._sessions.pop(session.id, None)
        session.close()
        with contextlib.suppress(RuntimeError):  # the pool has ended, and the process is about to
            self._pool.submit(self._clean_up, session.id)

    def hang_up_all(self, error: Status, linger_s: float) -> None:
        """Ends every session with an error; see :meth:`Session.hang_up`."""
        for session in self._open_sessions():
            session.hang_up(error, linger_s)

    def close_all(self) -> None:
        """Ends all sessions; none may be opened afterwards."""
        for session in self._open_sessions():
            self.close(session)
        self._slices.close(_END_TIMEOUT_S)
        self._pool.shutdown(wait=False, cancel_futures=True)

    def on_membership(self, membership: Membership) -> None:
        """Applies a snapshot: data of lost slices becomes an error, that of others moves.

        Raises:
            ValueError: The snapshot is of another instance.
        """
        same = self._membership
        if membership.instance_type != same.instance_type or len(membership.slices) != len(
            same.slices
        ):
            raise ValueError(
                f"membership changed from {len(same.slices)} x {same.instance_type} to "
                f"{len(membership.slices)} x {membership.instance_type}; restart the proxy"
            )
        self._slices.on_membership(membership)

    def _open_sessions(self) -> list[Session]:
        with self._lock:
            return list(self._sessions.values())

    def _clean_up(self, session_id: int) -> None:
        self._slices.forget(session_id)
        release_unused()
        _log.info("session %d closed", session_id)
