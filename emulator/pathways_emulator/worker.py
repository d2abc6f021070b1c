# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""A worker: the process that stands for one host of one slice.

It computes nothing in this version of the emulator (the proxy does); it is its slice's life. It
joins the resource manager, then listens, so that whoever can connect to it knows that it is joined.
"""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import uuid
from enum import IntEnum

from pathways_emulator import address as addresses
from pathways_emulator.address import Address
from pathways_emulator.flags import WorkerFlags
from pathways_emulator.join import Ending, Join, LeaseExpired, Stopped
from pathways_emulator.registration import Registration, StopKind
from pathways_emulator.settings import Settings
from pathways_emulator.worker_environment import Place

_log = logging.getLogger(__name__)

# For the resource manager to read that we leave. It learns of it anyway when the stream breaks.
_LEAVE_TIMEOUT_S = 1.0
# Much longer than an end takes to be noticed, and far below any lease.
_FOLLOW_AFTER_S = 0.5
# A client that connects and then does nothing does not keep its connection for ever.
_PROBE_TIMEOUT_S = 5.0
_BACKLOG = 128


class ExitCode(IntEnum):
    """What a worker's exit code says. Flags or environment that are wrong are 2, as everywhere."""

    ENDED = 0
    """SIGTERM, SIGINT, the service is ending, or nothing on the slice is needed any more: after a
    SIGTERM its data is saved, or the time until its death has passed."""
    CANNOT_LISTEN = 1
    """The port is taken, or the address is not this machine's."""
    REFUSED = 3
    """The resource manager refused the registration; the same one would be refused again."""
    STOPPED = 4
    """The resource manager said to stop: replaced by a newer incarnation, or another host of the
    slice ended."""
    LEASE_EXPIRED = 5
    """No contact with the resource manager for PATHWAYS_LEASE_S."""


_EXIT_CODES = {
    StopKind.REFUSED: ExitCode.REFUSED,
    StopKind.SUPERSEDED: ExitCode.STOPPED,
    StopKind.SLICE_ENDED: ExitCode.STOPPED,
    StopKind.SHUTDOWN: ExitCode.ENDED,
    StopKind.RELEASED: ExitCode.ENDED,
}


async def run(flags: WorkerFlags, settings: Settings, place: Place) -> ExitCode:
    """Takes part until told to stop, a signal, or the end of the lease."""
    where = Address(settings.bind_address, flags.server_port)
    name = f"worker of slice {place.slice_index} host {place.host_index}"
    stop: asyncio.Queue[str] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.put_nowait, number.name)
    try:
        # Before joining: a worker that cannot listen must not end a slice.
        bound = addresses.bind(where)
    except OSError as error:
        _log.error("%s: %s", name, error)
        return ExitCode.CANNOT_LISTEN
    _log.info(
        "%s (incarnation %d, %d hosts) joins %s",
        name,
        place.incarnation,
        place.hosts,
        flags.resource_manager_address,
    )
    registration = Registration(
        slice_index=place.slice_index,
        host_index=place.host_index,
        hosts=place.hosts,
        incarnation=place.incarnation,
        process_uuid=uuid.uuid4().hex,
        address=str(where),
        pid=os.getpid(),
    )
    join = Join(flags.resource_manager_address, registration, settings.lease_s)
    greeting = f"slice {place.slice_index} host {place.host_index} incarnation {place.incarnation}"
    with bound:
        return await _take_part(join, stop, bound, where, name, greeting)


async def _take_part(
    join: Join,
    stop: asyncio.Queue[str],
    bound: socket.socket,
    where: Address,
    name: str,
    hello: str,
) -> ExitCode:
    membership = asyncio.create_task(join.run())
    signalled = asyncio.create_task(stop.get())
    joined = asyncio.create_task(join.joined.wait())
    server: asyncio.Server | None = None
    waiting: set[asyncio.Task[Ending] | asyncio.Task[str] | asyncio.Task[bool]]
    waiting = {membership, signalled, joined}
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if joined.done() and not membership.done():
            try:
                server = await asyncio.start_server(
                    lambda reader, writer: _greet(reader, writer, hello),
                    sock=bound,
                    backlog=_BACKLOG,
                )
            except OSError as error:
                _log.error("%s: %s", name, addresses.explained(error, where))
                await join.leave("cannot listen", _LEAVE_TIMEOUT_S)
                return ExitCode.CANNOT_LISTEN
            _log.info("%s is ready on %s", name, where)
            await asyncio.wait({membership, signalled}, return_when=asyncio.FIRST_COMPLETED)
        if membership.done():
            ending = membership.result()
            if isinstance(ending, Stopped) and ending.kind is StopKind.SLICE_ENDED:
                await _let_the_first_end(server, signalled)
            return _ended(name, ending)
        reason = signalled.result()
        _log.info("%s ends: %s", name, reason)
        await join.leave(reason, _LEAVE_TIMEOUT_S)
        return ExitCode.ENDED
    finally:
        if server is not None:
            server.close()
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


def _ended(name: str, ending: Ending) -> ExitCode:
    match ending:
        case LeaseExpired(reason):
            code = ExitCode.LEASE_EXPIRED
        case _:
            code, reason = _EXIT_CODES[ending.kind], f"{ending.kind.value}: {ending.reason}"
    level = logging.INFO if code is ExitCode.ENDED else logging.ERROR
    _log.log(level, "%s ends with exit code %d: %s", name, code, reason)
    return code


async def _let_the_first_end(server: asyncio.Server | None, signalled: "asyncio.Task[str]") -> None:
    """Waits a moment before this host follows another one of its slice.

    Whoever runs the hosts names the one that ended first as the cause, and then ends the others by
    a signal; the resource manager's word to stop is often here before that end is noticed there.
    """
    if server is not None:
        server.close()
    await asyncio.wait({signalled}, timeout=_FOLLOW_AFTER_S)


async def _greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, hello: str) -> None:
    """Tells a readiness probe, or a person with a telnet, who listens here."""
    with contextlib.suppress(OSError, TimeoutError):
        writer.write(f"{hello} pid {os.getpid()}\n".encode())
        # The client closes first, so that the lingering end of the connection is on its side.
        await asyncio.wait_for(reader.read(), _PROBE_TIMEOUT_S)
    writer.close()
