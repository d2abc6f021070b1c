# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The membership service for those who look at it: the proxy, and tools."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue

import grpc

from pathways_emulator import membership_pb2 as pb
from pathways_emulator import rpc
from pathways_emulator.address import Address
from pathways_emulator.membership import Membership

_log = logging.getLogger(__name__)

_FIRST_BACKOFF_S = 0.05
_MAX_BACKOFF_S = 0.5
# A stream without its keepalives for so many intervals leads nowhere.
_MISSED_KEEPALIVES = 5
# Until the first snapshot has told the interval.
_FIRST_SNAPSHOT_TIMEOUT_S = 10.0


class Watcher:
    """Follows the resource manager's snapshots, across its restarts.

    While it is away the last snapshot stands: not to see is no evidence of loss.
    """

    def __init__(self, resource_manager: Address) -> None:
        self._address = resource_manager
        # Messages with the number of their stream; None to stop. A SimpleQueue and a plain flag,
        # because `stop` may run in a signal handler, where a lock could be held already.
        self._inbox: SimpleQueue[tuple[int, pb.Snapshot | grpc.RpcError] | None] = SimpleQueue()
        self._stopped = False
        self._streams = 0
        self._away = False

    def stop(self) -> None:
        """Makes `run` return. For any thread, and for signal handlers."""
        self._stopped = True
        self._inbox.put(None)

    def run(self, on_membership: Callable[[Membership], None]) -> None:
        """Calls `on_membership` with every snapshot that differs from the one before.

        Returns after `stop`. What `on_membership` raises goes to the caller.
        """
        last: Membership | None = None
        backoff_s = _FIRST_BACKOFF_S
        while not self._stopped:
            for membership in self._one_stream():
                backoff_s = _FIRST_BACKOFF_S
                if membership != last:
                    last = membership
                    on_membership(membership)
            self._pause(backoff_s)
            backoff_s = min(2 * backoff_s, _MAX_BACKOFF_S)

    def _one_stream(self) -> Iterator[Membership]:
        """Snapshots of one stream, until it breaks, falls silent, or `stop` is called."""
        self._streams += 1
        number = self._streams
        with grpc.insecure_channel(str(self._address), options=rpc.CHANNEL_OPTIONS) as channel:
            call = rpc.watch(channel)(pb.WatchRequest())
            reader = threading.Thread(
                target=self._read, args=(number, call), name="membership-watch", daemon=True
            )
            reader.start()
            timeout_s = _FIRST_SNAPSHOT_TIMEOUT_S
            try:
                while not self._stopped:
                    try:
                        item = self._inbox.get(timeout=timeout_s)
                    except Empty:
                        self._lost(f"silent for {timeout_s:g} s")
                        return
                    if item is None or item[0] != number:
                        continue
                    if not isinstance(item[1], pb.Snapshot):
                        self._lost(_describe(item[1]))
                        return
                    self._found()
                    timeout_s = max(_MISSED_KEEPALIVES * item[1].keepalive_s, _MAX_BACKOFF_S)
                    yield rpc.snapshot_from_pb(item[1])
            finally:
                call.cancel()
                reader.join()

    def _read(self, number: int, call: Iterator[pb.Snapshot]) -> None:
        try:
            for snapshot in call:
                self._inbox.put((number, snapshot))
        except grpc.RpcError as error:
            self._inbox.put((number, error))
        else:
            self._inbox.put((number, grpc.RpcError("it ended the stream")))

    def _pause(self, duration_s: float) -> None:
        deadline_s = time.monotonic() + duration_s
        while not self._stopped and (left_s := deadline_s - time.monotonic()) > 0:
            with contextlib.suppress(Empty):
                self._inbox.get(timeout=left_s)

    def _found(self) -> None:
        if self._away:
            self._away = False
            _log.info("the resource manager at %s is there", self._address)

    def _lost(self, details: str) -> None:
        """Once per loss of contact, not once per attempt."""
        if not self._away and not self._stopped:
            self._away = True
            _log.warning("waiting for the resource manager at %s (%s)", self._address, details)


def announce_shutdown(resource_manager: Address, reason: str, timeout_s: float) -> None:
    """Tells the resource manager that the service ends: its workers stop, nothing counts as lost.

    Raises:
        grpc.RpcError: It could not be reached in time.
    """
    with grpc.insecure_channel(str(resource_manager), options=rpc.CHANNEL_OPTIONS) as channel:
        request = pb.AnnounceShutdownRequest(reason=reason)
        rpc.announce_shutdown(channel)(request, timeout=timeout_s)


def release(
    resource_manager: Address, slice_index: int, incarnation: int, reason: str, timeout_s: float
) -> None:
    """Says that nothing on that run of a slice is needed any more: its workers may end.

    Nothing happens if it is over already, or a newer one has registered.

    Raises:
        grpc.RpcError: The resource manager could not be reached in time.
    """
    with grpc.insecure_channel(str(resource_manager), options=rpc.CHANNEL_OPTIONS) as channel:
        request = pb.ReleaseRequest(slice_index=slice_index, incarnation=incarnation, reason=reason)
        rpc.release(channel)(request, timeout=timeout_s)


def status(resource_manager: Address, timeout_s: float) -> pb.StatusResponse:
    """What the resource manager knows, host by host.

    Raises:
        grpc.RpcError: It could not be reached in time.
    """
    with grpc.insecure_channel(str(resource_manager), options=rpc.CHANNEL_OPTIONS) as channel:
        return rpc.status(channel)(pb.StatusRequest(), timeout=timeout_s)


def _describe(error: grpc.RpcError) -> str:
    return str(error.details()) if isinstance(error, grpc.Call) else str(error)
