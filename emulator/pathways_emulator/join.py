# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The worker's side of membership: joins, stays joined across restarts of the resource manager."""

# gRPC's classes are generic in their stubs only, not when the program runs.
from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass

import grpc

from pathways_emulator import membership_pb2 as pb
from pathways_emulator import rpc
from pathways_emulator.address import Address
from pathways_emulator.lease import Lease, clock_s
from pathways_emulator.registration import Registration, StopKind

_log = logging.getLogger(__name__)

_FIRST_BACKOFF_S = 0.05
# Small against any heartbeat timeout, within which a restarted resource manager waits for everyone.
_MAX_BACKOFF_S = 0.5
# How often the lease is looked at, at least; also how a stop of this process is noticed.
_LEASE_CHECK_S = 0.5
_NANOSECONDS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Stopped:
    """The resource manager said so, or this process must say so itself."""

    kind: StopKind
    reason: str


@dataclass(frozen=True, slots=True)
class LeaseExpired:
    """The resource manager could not be reached for too long."""

    reason: str


@dataclass(frozen=True, slots=True)
class _Notice:
    reason: str
    # Of this object's clock.
    deadline_s: float


type _Call = grpc.aio.StreamStreamCall[pb.JoinRequest, pb.JoinResponse]
type Ending = Stopped | LeaseExpired


class Join:
    """Keeps one worker process joined until it has to end. For one event loop."""

    def __init__(
        self,
        resource_manager: Address,
        registration: Registration,
        lease_s: float,
        clock: Callable[[], float] = clock_s,
    ) -> None:
        """
        Args:
            resource_manager: Where it listens.
            registration: Of this process; the same for as long as it lives.
            lease_s: Seconds without contact after which `run` returns `LeaseExpired`.
            clock: Counts seconds while the process is stopped, too.
        """
        self._address = resource_manager
        self._registration = registration
        self._clock = clock
        self._lease = Lease(lease_s, clock())
        self._looked_s = clock()
        self._stopped_for_s = 0.0
        self._woke_s = 0.0
        self._heartbeat_timeout_s: float | None = None
        self._call: _Call | None = None
        # Of the present stream, from its welcome on.
        self._heartbeats: asyncio.Task[None] | None = None
        # A stream takes one message at a time.
        self._writing = asyncio.Lock()
        self._complained = False
        self._notice: _Notice | None = None
        self.joined = asyncio.Event()
        """Set once the resource manager has welcomed this worker."""

    async def run(self) -> Ending:
        """Joins and stays joined; returns when the worker must end, and why."""
        stay = asyncio.create_task(self._stay())
        expire = asyncio.create_task(self._expire())
        try:
            await asyncio.wait({stay, expire}, return_when=asyncio.FIRST_COMPLETED)
            # An order from the resource manager says more than a lease that ran out with it.
            return stay.result() if stay.done() else expire.result()
        finally:
            for task in (stay, expire):
                task.cancel()
            await asyncio.gather(stay, expire, return_exceptions=True)

    @property
    def connected(self) -> bool:
        """Whether the resource manager has welcomed this worker and is thought to be there."""
        return self._heartbeats is not None

    async def give_notice(self, reason: str, left_s: float) -> None:
        """Tells the resource manager that this process, and so its slice, is about to go.

        One that restarts is told again, with the time that is left then. Without contact, or for a
        stream that breaks meanwhile, it is told at the next welcome.

        Args:
            reason: For people.
            left_s: Seconds until this process will be killed.
        """
        self._notice = _Notice(reason, self._clock() + left_s)
        if self._call is not None and self.connected:
            with contextlib.suppress(grpc.RpcError, asyncio.InvalidStateError):
                await self._tell_notice(self._call)

    async def leave(self, reason: str, timeout_s: float) -> None:
        """Tells the resource manager that this worker ends; gives up after `timeout_s`."""
        call = self._call
        if call is None:
            return
        with contextlib.suppress(grpc.RpcError, asyncio.InvalidStateError, TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._write(call, pb.JoinRequest(leave=pb.Leave(reason=reason)))
                # The resource manager ends the stream once it has read this.
                await call.code()

    async def _stay(self) -> Ending:
        backoff_s = _FIRST_BACKOFF_S
        while True:
            was_joined_at = self._lease.renewed_s
            ending = await self._attempt()
            if ending is not None:
                return ending
            self._look()
            if self._stopped_for_s:
                return Stopped(
                    StopKind.SLICE_ENDED,
                    f"this process was stopped for {self._stopped_for_s:.1f} s, longer than the "
                    f"heartbeat timeout of {self._heartbeat_timeout_s:g} s, and lost its stream: "
                    "it counts as lost",
                )
            backoff_s = (
                _FIRST_BACKOFF_S
                if self._lease.renewed_s > was_joined_at
                else min(2 * backoff_s, _MAX_BACKOFF_S)
            )
            await asyncio.sleep(backoff_s)

    async def _attempt(self) -> Stopped | None:
        """One stream, until it breaks (None) or the resource manager says stop."""
        async with grpc.aio.insecure_channel(
            str(self._address), options=rpc.CHANNEL_OPTIONS
        ) as channel:
            call = rpc.join(channel)()
            try:
                registered_s = self._clock()
                registration = rpc.registration_to_pb(self._registration)
                self._call = call
                await self._write(call, pb.JoinRequest(registration=registration))
                async for response in call:
                    match response.WhichOneof("order"):
                        case "welcome":
                            self._welcomed(response.welcome, registered_s)
                            self._heartbeats = asyncio.create_task(
                                self._beat(call, response.welcome.heartbeat_interval_s)
                            )
                            await self._tell_notice(call)
                        case "ack":
                            self._acknowledged(response.ack.sent_ns / _NANOSECONDS)
                        case "stop":
                            kind = rpc.stop_kind_from_pb(response.stop)
                            return Stopped(kind, response.stop.reason)
                self._complain("the resource manager ended the stream")
            except grpc.RpcError as error:
                details = error.details() if isinstance(error, grpc.aio.AioRpcError) else error
                self._complain(str(details))
            except asyncio.InvalidStateError as error:
                # What writing to a stream that is over raises.
                self._complain(str(error))
            finally:
                self._call = None
                if self._heartbeats is not None:
                    self._heartbeats.cancel()
                    self._heartbeats = None
                call.cancel()
        return None

    async def _write(self, call: _Call, request: pb.JoinRequest) -> None:
        async with self._writing:
            await call.write(request)

    async def _tell_notice(self, call: _Call) -> None:
        if self._notice is not None:
            left_s = max(0.0, self._notice.deadline_s - self._clock())
            notice = pb.Notice(reason=self._notice.reason, left_s=left_s)
            await self._write(call, pb.JoinRequest(notice=notice))

    async def _beat(self, call: _Call, interval_s: float) -> None:
        with contextlib.suppress(grpc.RpcError, asyncio.InvalidStateError):
            while True:
                await asyncio.sleep(interval_s)
                sent_ns = int(self._clock() * _NANOSECONDS)
                request = pb.JoinRequest(heartbeat=pb.Heartbeat(sent_ns=sent_ns))
                await self._write(call, request)

    def _welcomed(self, welcome: pb.Welcome, sent_s: float) -> None:
        again = "again " if self.joined.is_set() else ""
        _log.info("joined %s%s", again, self._address)
        self._heartbeat_timeout_s = welcome.heartbeat_timeout_s
        self._complained = False
        self._acknowledged(sent_s)
        self.joined.set()

    def _acknowledged(self, sent_s: float) -> None:
        self._lease.renew(sent_s)
        self._look()
        if sent_s >= self._woke_s:
            # The resource manager still counts us in after we woke up.
            self._stopped_for_s = 0.0

    def _look(self) -> None:
        """Notices if this process was stopped for so long that it must count as lost."""
        now_s = self._clock()
        gap_s, self._looked_s = now_s - self._looked_s, now_s
        timeout_s = self._heartbeat_timeout_s
        if timeout_s is None:
            return
        # The resource manager counts silence from the last heartbeat on, which was sent no earlier
        # than the last one it answered. A gap between two looks tells that it was this process that
        # was silent, and not the resource manager that was away.
        if gap_s > timeout_s / 2 and now_s - self._lease.renewed_s > timeout_s:
            self._stopped_for_s, self._woke_s = gap_s, now_s

    async def _expire(self) -> LeaseExpired:
        while (left_s := self._lease.left_s(self._clock())) > 0:
            self._look()
            await asyncio.sleep(min(left_s, self._check_interval_s()))
        return LeaseExpired(
            f"no contact with the resource manager at {self._address} for "
            f"{self._lease.duration_s:g} s (PATHWAYS_LEASE_S)"
        )

    def _check_interval_s(self) -> float:
        # Well below the gap that `_look` takes for a stop of the process.
        timeout_s = self._heartbeat_timeout_s
        return _LEASE_CHECK_S if timeout_s is None else min(_LEASE_CHECK_S, timeout_s / 4)

    def _complain(self, details: str) -> None:
        """Once per loss of contact, not once per attempt."""
        if not self._complained:
            self._complained = True
            left_s = self._lease.left_s(self._clock())
            _log.warning(
                "no contact with the resource manager at %s (%s); trying for %.1f s more",
                self._address,
                details,
                left_s,
            )
