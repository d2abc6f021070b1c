# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The resource manager: the registry behind a gRPC server."""

# gRPC's classes are generic in their stubs only, not when the program runs.
from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import signal
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial

import grpc

from pathways_emulator import address as addresses
from pathways_emulator import membership_pb2 as pb
from pathways_emulator import rpc
from pathways_emulator.address import Address
from pathways_emulator.flags import ResourceManagerFlags
from pathways_emulator.registry import Outcome, Registry, Stop, Welcome
from pathways_emulator.settings import Settings
from pathways_emulator.supervision import OrdersFile, ReportFile
from pathways_slurm import topology
from pathways_slurm.runtime_files import Orders

_log = logging.getLogger(__name__)

# Time for Stop orders to leave before the process ends.
_GRACE_S = 0.2
# How often the orders are looked at, and how soon a report that was not written is tried again.
_FILES_INTERVAL_S = 0.2


def valid_hosts(instance_type: str) -> frozenset[int]:
    """How many hosts a slice of that type can have.

    ``tpuv6e:2x4`` is two hosts of 4 chips or one of 8: machines of both kinds exist, and the name
    alone does not tell. ``tpuv6e1t:2x4`` is one.

    Raises:
        TopologyError: There is no such type or shape.
    """
    parsed = topology.parse_instance_type(instance_type)
    if parsed.chips_per_host == 8:
        return frozenset({parsed.hosts})
    hosts = {parsed.hosts}
    with contextlib.suppress(topology.TopologyError):
        hosts.add(topology.topology_for(parsed.tpu_type, parsed.shape, 8).hosts)
    return frozenset(hosts)


class ResourceManager:
    """Turns gRPC's streams into the registry's events, and its orders into messages.

    Everything runs on one event loop, so that the registry needs no lock.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._started_s = time.monotonic()
        self._connections = itertools.count(1)
        self._outboxes: dict[int, asyncio.Queue[pb.JoinResponse | None]] = {}
        self._snapshot = registry.snapshot(time.time())
        self._changed = asyncio.Event()
        self._applied = asyncio.Event()
        self._closing = False

    async def tick_forever(self) -> None:
        """Lets the registry notice silence."""
        while True:
            await asyncio.sleep(self._registry.tick_s)
            self._apply(self._registry.tick(time.monotonic()))

    async def report_forever(self, file: ReportFile) -> None:
        """Writes every change of the report."""
        while True:
            # Before the report is taken, so that a change meanwhile is not missed.
            self._applied.clear()
            if await asyncio.to_thread(file.keep, self._registry.report()):
                await self._applied.wait()
            else:
                await asyncio.sleep(_FILES_INTERVAL_S)

    async def obey_forever(self, file: OrdersFile) -> None:
        """Follows the supervisor's orders."""
        while True:
            orders = await asyncio.to_thread(file.news)
            if orders is not None:
                self.obey(orders)
            await asyncio.sleep(_FILES_INTERVAL_S)

    def obey(self, orders: Orders) -> None:
        """Follows these orders."""
        self._apply(self._registry.obey(orders))

    def close(self) -> None:
        """Ends all streams; from now on their end is our own doing and means nothing."""
        self._closing = True
        for outbox in self._outboxes.values():
            outbox.put_nowait(None)
        self._changed.set()

    async def join(
        self,
        requests: AsyncIterator[pb.JoinRequest],
        context: grpc.aio.ServicerContext[pb.JoinRequest, pb.JoinResponse],
    ) -> None:
        connection = next(self._connections)
        outbox: asyncio.Queue[pb.JoinResponse | None] = asyncio.Queue()
        self._outboxes[connection] = outbox
        reader = asyncio.create_task(self._read(connection, requests))

        def reader_ended(task: asyncio.Task[None]) -> None:
            # However the reader ends, the stream ends with it.
            outbox.put_nowait(None)
            if not task.cancelled() and task.exception() is not None:
                _log.error("connection %d: %r", connection, task.exception())

        reader.add_done_callback(reader_ended)
        try:
            while (response := await outbox.get()) is not None:
                await context.write(response)
                if response.HasField("stop"):
                    break
        finally:
            # Also on cancellation, which is how gRPC tells that the peer is gone.
            reader.cancel()
            del self._outboxes[connection]
            if not self._closing:
                self._apply(self._registry.closed(connection))

    async def _read(self, connection: int, requests: AsyncIterator[pb.JoinRequest]) -> None:
        async for request in requests:
            self._registry.heard(connection)
            match request.WhichOneof("event"):
                case "registration":
                    registration = rpc.registration_from_pb(request.registration)
                    self._apply(self._registry.register(connection, registration))
                case "notice":
                    notice = request.notice
                    self._apply(
                        self._registry.notice(connection, notice.reason, notice.left_s, time.time())
                    )
                case "heartbeat":
                    ack = pb.Ack(sent_ns=request.heartbeat.sent_ns)
                    self._send(connection, pb.JoinResponse(ack=ack))
                case "leave":
                    self._apply(self._registry.leave(connection, request.leave.reason))
                    return

    async def watch(
        self,
        _request: pb.WatchRequest,
        context: grpc.aio.ServicerContext[pb.WatchRequest, pb.Snapshot],
    ) -> None:
        keepalive_s = self._registry.heartbeat_interval_s
        while not self._closing:
            # Taken before the snapshot is sent, so that a change meanwhile is not missed.
            changed = self._changed
            snapshot = self._registry.snapshot(time.time())
            await context.write(rpc.snapshot_to_pb(snapshot, keepalive_s))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), keepalive_s)

    async def announce_shutdown(
        self,
        request: pb.AnnounceShutdownRequest,
        _context: grpc.aio.ServicerContext[pb.AnnounceShutdownRequest, pb.AnnounceShutdownResponse],
    ) -> pb.AnnounceShutdownResponse:
        reason = request.reason or "the service is ending"
        self._apply(self._registry.announce_shutdown(reason))
        return pb.AnnounceShutdownResponse()

    async def release(
        self,
        request: pb.ReleaseRequest,
        _context: grpc.aio.ServicerContext[pb.ReleaseRequest, pb.ReleaseResponse],
    ) -> pb.ReleaseResponse:
        reason = request.reason or "it is not needed any more"
        self._apply(self._registry.release(request.slice_index, request.incarnation, reason))
        return pb.ReleaseResponse()

    async def status(
        self,
        _request: pb.StatusRequest,
        _context: grpc.aio.ServicerContext[pb.StatusRequest, pb.StatusResponse],
    ) -> pb.StatusResponse:
        return pb.StatusResponse(
            snapshot=rpc.snapshot_to_pb(
                self._registry.snapshot(time.time()), self._registry.heartbeat_interval_s
            ),
            hosts=[rpc.host_to_pb(host) for host in self._registry.hosts()],
            uptime_s=time.monotonic() - self._started_s,
            shutting_down=self._registry.shutting_down,
        )

    def _apply(self, outcome: Outcome) -> None:
        for line in outcome.log:
            _log.info("%s", line)
        for order in outcome.orders:
            match order:
                case Welcome(connection):
                    interval_s = self._registry.heartbeat_interval_s
                    welcome = pb.Welcome(
                        heartbeat_interval_s=interval_s,
                        heartbeat_timeout_s=self._registry.heartbeat_timeout_s,
                    )
                    self._send(connection, pb.JoinResponse(welcome=welcome))
                case Stop(connection, kind, reason):
                    self._send(connection, pb.JoinResponse(stop=rpc.stop_to_pb(kind, reason)))
        self._applied.set()
        snapshot = self._registry.snapshot(time.time())
        if snapshot != self._snapshot:
            self._snapshot = snapshot
            self._changed.set()
            self._changed = asyncio.Event()

    def _send(self, connection: int, response: pb.JoinResponse) -> None:
        outbox = self._outboxes.get(connection)
        if outbox is not None:
            outbox.put_nowait(response)


async def run(flags: ResourceManagerFlags, settings: Settings) -> int:
    """Serves until SIGTERM or SIGINT; workers are left alone then, a successor takes them on.

    Returns:
        The exit code: 0, or 1 if the port is taken.
    """
    where = Address(settings.bind_address, flags.server_port)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    registry = Registry(
        instance_type=flags.instance_type,
        instance_count=flags.instance_count,
        valid_hosts=valid_hosts(flags.instance_type),
        heartbeat_timeout_s=settings.heartbeat_timeout_s,
        now_s=time.monotonic(),
    )
    manager = ResourceManager(registry)
    server = grpc.aio.server(options=rpc.SERVER_OPTIONS)
    server.add_generic_rpc_handlers((rpc.handler(manager),))
    try:
        # gRPC's own error does not say why; a socket's does.
        addresses.require_free(where)
        # Before the port opens, so that whoever finds it open finds this report and not that of a
        # predecessor, and no worker is joined that must end.
        files = _open_files(manager, registry, settings)
        server.add_insecure_port(str(where))
    except (OSError, RuntimeError) as error:
        _log.error("resource manager: %s", error)
        return 1
    await server.start()
    chips = topology.parse_instance_type(flags.instance_type).chips
    _log.info(
        "resource manager listens on %s for %d slices of %s (%d chips each)",
        where,
        flags.instance_count,
        flags.instance_type,
        chips,
    )
    tasks = [asyncio.create_task(work()) for work in (manager.tick_forever, *files)]
    await stop.wait()
    rest = "" if registry.shutting_down else "; workers stay for their lease, for a successor"
    _log.info("resource manager ends%s", rest)
    for task in tasks:
        task.cancel()
    manager.close()
    await server.stop(_GRACE_S)
    return 0


def _open_files(
    manager: ResourceManager, registry: Registry, settings: Settings
) -> list[Callable[[], Coroutine[None, None, None]]]:
    """Follows the orders as they are and writes the first report; returns what has to go on."""
    rest: list[Callable[[], Coroutine[None, None, None]]] = []
    if settings.orders_file is not None:
        orders = OrdersFile(settings.orders_file)
        found = orders.news()
        if found is not None:
            manager.obey(found)
        rest.append(partial(manager.obey_forever, orders))
    if settings.report_file is not None:
        report = ReportFile(settings.report_file)
        report.keep(registry.report())
        rest.append(partial(manager.report_forever, report))
    return rest
