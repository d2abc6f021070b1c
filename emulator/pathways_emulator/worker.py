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
import time
import uuid

from pathways_emulator import address as addresses
from pathways_emulator import processes
from pathways_emulator.address import Address, AddressInUseError
from pathways_emulator.exit_codes import ExitCode
from pathways_emulator.flags import WorkerFlags
from pathways_emulator.join import Ending, Join, LeaseExpired, Stopped
from pathways_emulator.registration import Registration, StopKind
from pathways_emulator.settings import Settings
from pathways_emulator.worker_environment import Place

_log = logging.getLogger(__name__)

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
# For the resource manager to read that we leave. It learns of it anyway when the stream breaks.
_LEAVE_TIMEOUT_S = 1.0
# Much longer than an end takes to be noticed, and far below any lease.
_FOLLOW_AFTER_S = 0.5
# A client that connects and then does nothing does not keep its connection for ever.
_PROBE_TIMEOUT_S = 5.0
_BACKLOG = 128
# For the end of an earlier run whose processes nobody has ended: it is told as this one joins.
_PREDECESSOR_S = 5.0
_TRY_AGAIN_S = 0.05


_EXIT_CODES = {
    StopKind.REFUSED: ExitCode.REFUSED,
    StopKind.SUPERSEDED: ExitCode.STOPPED,
    StopKind.SLICE_ENDED: ExitCode.STOPPED,
    StopKind.SHUTDOWN: ExitCode.ENDED,
    StopKind.RELEASED: ExitCode.ENDED,
}


async def run(flags: WorkerFlags, settings: Settings, place: Place) -> ExitCode:
    """Takes part until told to stop, a signal, or the end of the lease.

    A SIGTERM is a notice for the whole slice: the worker passes it on and stays until nothing on
    the slice is needed any more, or until `settings.notice_s` has passed. SIGINT ends it at once.
    """
    where = Address(settings.bind_address, flags.server_port)
    signals: asyncio.Queue[signal.Signals] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, signals.put_nowait, number)
    name = f"worker of slice {place.slice_index} host {place.host_index}"
    bound: socket.socket | None = None
    try:
        # Before joining: a worker that cannot listen must not end a slice.
        bound = addresses.bind(where)
    except OSError as error:
        if place.incarnation == 1 or not isinstance(error, AddressInUseError):
            _log.error("%s: %s", name, error)
            return ExitCode.CANNOT_LISTEN
        # An earlier run may have been left here, such as by a slurmstepd that was killed.
        _log.warning("%s: %s; if it is of an earlier run, it ends now", name, error)
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
        pid_space=processes.pid_space(),
        node=socket.gethostname(),
    )
    join = Join(flags.resource_manager_address, registration, settings.lease_s)
    worker = _Worker(name, place, join, signals, settings.notice_s)
    try:
        with contextlib.ExitStack() as stack:
            if bound is not None:
                stack.enter_context(bound)
            return await worker.run(bound, where)
    finally:
        # It ends now, and must do so with this exit code whatever else is sent to it.
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_IGN)


class _Worker:
    """One worker's life, from its first attempt to join."""

    def __init__(
        self,
        name: str,
        place: Place,
        join: Join,
        signals: "asyncio.Queue[signal.Signals]",
        notice_s: float,
    ) -> None:
        self._name = name
        self._place = place
        self._join = join
        self._signals = signals
        self._notice_s = notice_s
        self._server: asyncio.Server | None = None

    async def run(self, bound: socket.socket | None, where: Address) -> ExitCode:
        """Takes part, listening once it is joined: on `bound`, or as soon as `where` is free."""
        membership = asyncio.create_task(self._join.run())
        joined = asyncio.create_task(self._join.joined.wait())
        signalled = asyncio.create_task(self._signals.get())
        listening: asyncio.Task[None] | None = None
        try:
            await asyncio.wait({membership, joined, signalled}, return_when=asyncio.FIRST_COMPLETED)
            if joined.done() and not membership.done():
                listening = asyncio.create_task(self._listen(bound, where))
                await asyncio.wait(
                    {membership, signalled, listening}, return_when=asyncio.FIRST_COMPLETED
                )
                if listening.done() and isinstance(error := listening.exception(), OSError):
                    # It breaks off rather than leaves: to leave is to end in order.
                    _log.error("%s: %s", self._name, addresses.explained(error, where))
                    return ExitCode.CANNOT_LISTEN
                if listening.done():
                    listening.result()
                    _log.info("%s is ready on %s", self._name, where)
                await asyncio.wait({membership, signalled}, return_when=asyncio.FIRST_COMPLETED)
            reason = "" if membership.done() else await self._obey(signalled.result(), membership)
            if membership.done():
                ending = membership.result()
                if isinstance(ending, Stopped) and ending.kind is StopKind.SLICE_ENDED:
                    await self._let_the_first_end(signalled)
                return self._ended(ending)
            _log.info("%s ends: %s", self._name, reason)
            await self._join.leave(reason, _LEAVE_TIMEOUT_S)
            return ExitCode.ENDED
        finally:
            if self._server is not None:
                self._server.close()
            tasks = tuple(filter(None, (membership, joined, signalled, listening)))
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _obey(self, number: signal.Signals, membership: "asyncio.Task[Ending]") -> str:
        """What a signal leads to.

        Returns:
            Why the worker must leave; meaningless if it was told to stop meanwhile.
        """
        if number is not signal.SIGTERM or not self._notice_s:
            return number.name
        if not self._join.connected:
            return f"{number.name}, and nobody is there who could save the slice's data"
        _log.info(
            "%s got %s: slice %d goes within %g s; waiting for its data to be saved",
            self._name,
            number.name,
            self._place.slice_index,
            self._notice_s,
        )
        notice = asyncio.create_task(
            self._join.give_notice(
                f"host {self._place.host_index} got {number.name}", self._notice_s
            )
        )
        interrupted = asyncio.create_task(self._interrupted())
        try:
            await asyncio.wait(
                {membership, interrupted},
                timeout=self._notice_s,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if interrupted.done():
                return interrupted.result().name
            return f"the {self._notice_s:g} s since {number.name} have passed"
        finally:
            # To cancel a write is to break the stream, on which to leave is still to be told.
            await asyncio.wait({notice}, timeout=_LEAVE_TIMEOUT_S)
            for task in (notice, interrupted):
                task.cancel()
            await asyncio.gather(notice, interrupted, return_exceptions=True)

    async def _interrupted(self) -> signal.Signals:
        """Waits for a signal other than SIGTERM: schedulers repeat that, and it is known."""
        while (number := await self._signals.get()) is signal.SIGTERM:
            _log.info("%s got %s again; it has been passed on", self._name, number.name)
        return number

    def _ended(self, ending: Ending) -> ExitCode:
        match ending:
            case LeaseExpired(reason):
                code = ExitCode.LEASE_EXPIRED
            case _:
                code, reason = _EXIT_CODES[ending.kind], f"{ending.kind.value}: {ending.reason}"
        level = logging.INFO if code is ExitCode.ENDED else logging.ERROR
        _log.log(level, "%s ends with exit code %d: %s", self._name, code, reason)
        return code

    async def _let_the_first_end(self, signalled: "asyncio.Task[signal.Signals]") -> None:
        """Waits a moment before this host follows another one of its slice.

        Whoever runs the hosts names the one that ended first as the cause, and then ends the others
        by a signal; the resource manager's word to stop is often here before that end is noticed
        there.
        """
        if self._server is not None:
            self._server.close()
        await asyncio.wait({signalled}, timeout=_FOLLOW_AFTER_S)

    async def _listen(self, bound: socket.socket | None, where: Address) -> None:
        """Raises OSError."""
        bound = bound or await _bind_after_a_predecessor(where)
        place = self._place
        hello = f"slice {place.slice_index} host {place.host_index} incarnation {place.incarnation}"
        self._server = await asyncio.start_server(
            lambda reader, writer: _greet(reader, writer, hello), sock=bound, backlog=_BACKLOG
        )


async def _bind_after_a_predecessor(where: Address) -> socket.socket:
    deadline = time.monotonic() + _PREDECESSOR_S
    while True:
        try:
            return addresses.bind(where)
        except AddressInUseError:
            if time.monotonic() >= deadline:
                raise
        await asyncio.sleep(_TRY_AGAIN_S)


async def _greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, hello: str) -> None:
    """Tells a readiness probe, or a person with a telnet, who listens here."""
    with contextlib.suppress(OSError, TimeoutError):
        writer.write(f"{hello} pid {os.getpid()}\n".encode())
        # The client closes first, so that the lingering end of the connection is on its side.
        await asyncio.wait_for(reader.read(), _PROBE_TIMEOUT_S)
    writer.close()
