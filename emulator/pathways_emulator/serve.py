# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""`pathways-emulator serve`: resource manager, proxy and workers in one go, until it is ended."""

import asyncio
import contextlib
import os
import signal
import sys
import time
import uuid
from collections.abc import Coroutine, Mapping

from pathways_emulator import control, env_file, reading, serve_plan, slice_news
from pathways_emulator.address import Address
from pathways_emulator.children import Child
from pathways_emulator.serve_plan import Plan, Worker
from pathways_emulator.serve_slices import Slices
from pathways_slurm import files, runtime_files
from pathways_slurm.runtime_files import Report, SliceReport

COMMAND = "pathways-emulator serve"

# JAX takes seconds to load on a busy machine; nothing else here takes one.
_READY_TIMEOUT_S = 120.0
_PROBE_INTERVAL_S = 0.05
_ANNOUNCE_TIMEOUT_S = 2.0
_NEWS_INTERVAL_S = 0.1
# Between SIGTERM and SIGKILL.
_TERM_TIMEOUT_S = 5.0


class StartError(Exception):
    """The service did not come up, or a part of it that it needs has ended."""


def main(options: Mapping[str, str], *, verbose: bool) -> int:
    """Runs the service.

    Args:
        options: As in `serve_plan.make`.
        verbose: Pass on what every process logs.

    Returns:
        The exit code: 0 after Ctrl-C, SIGTERM or SIGHUP; 1 if the service did not come up or lost
        its resource manager or proxy; 2 for wrong options.
    """
    faults: list[str] = []
    plan = serve_plan.make(options, os.environ, faults)
    if plan is None:
        print(reading.report(COMMAND, faults), file=sys.stderr)
        return 2
    return asyncio.run(_Service(plan, verbose).run())


class _Service:
    """One run of `serve`."""

    def __init__(self, plan: Plan, verbose: bool) -> None:
        self._plan = plan
        self._verbose = verbose
        self._started_s = time.monotonic()
        self._signals: asyncio.Queue[str] = asyncio.Queue()
        self._children: list[Child] = []
        self._orders: asyncio.Server | None = None
        self._janitor: asyncio.subprocess.Process | None = None
        self._token = f"process {os.getpid()} {uuid.uuid4().hex}"

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._signals.put_nowait, number.name)
        signalled = asyncio.create_task(self._signals.get())
        serving = asyncio.create_task(self._serve())
        try:
            await asyncio.wait({signalled, serving}, return_when=asyncio.FIRST_COMPLETED)
            if not serving.done():
                self._say(f"{signalled.result()}: ending")
                return 0
            serving.result()
            return 1
        except (StartError, OSError) as error:
            self._say(f"ending: {error}")
            return 1
        finally:
            for task in (serving, signalled):
                task.cancel()
            await asyncio.gather(serving, signalled, return_exceptions=True)
            await self._end()

    async def _serve(self) -> None:
        """Starts everything and follows it; returns never, raises when it must end."""
        plan = self._plan
        hosts = f"{plan.topology.hosts} host{'s' * (plan.topology.hosts > 1)}"
        self._say(
            f"{plan.slices} slice{'s' * (plan.slices > 1)} of {plan.topology.instance_type} "
            f"({plan.topology.chips} devices, {hosts} each)"
        )
        # Before the directory is made, so that it is removed whenever we end.
        await self._start_janitor()
        plan.directory.mkdir(mode=files.PRIVATE_DIR_MODE)
        plan.scratch.mkdir(mode=files.PRIVATE_DIR_MODE)
        manager = await self._start(plan.manager, echo=self._verbose)
        proxy = await self._start(plan.proxy, echo=True)
        try:
            async with asyncio.TaskGroup() as group:
                slices = Slices(
                    plan.workers,
                    start=self._start_worker,
                    answers=_answers,
                    is_alive=self._is_alive,
                    say=self._say,
                    ready_timeout_s=_READY_TIMEOUT_S,
                    group=group,
                )
                workers = await slices.start_all()
                group.create_task(self._require(manager))
                group.create_task(self._require(proxy))
                ready = group.create_task(self._become_ready(manager, proxy, workers))
                for worker in workers:
                    group.create_task(self._follow(worker, slices, ready))
                await ready
                await self._take_orders(slices, group)
                await self._tell_news()
        except ExceptionGroup as errors:
            # The first is the cause; the rest follow from it.
            raise errors.exceptions[0] from None

    async def _become_ready(self, manager: Child, proxy: Child, workers: list[Child]) -> None:
        try:
            async with asyncio.timeout(_READY_TIMEOUT_S):
                await _answers(manager.component.address)
                self._say(f"resource manager ready on {manager.component.address}")
                for worker in workers:
                    await _answers(worker.component.address)
                self._say(f"all {len(workers)} workers joined")
                await _answers(proxy.component.address)
        except TimeoutError:
            raise StartError(f"not ready after {_READY_TIMEOUT_S:g} s") from None
        self._say(f"proxy ready on {proxy.component.address}")
        if self._plan.env_file is not None:
            env_file.write(self._plan.env_file, self._plan.variables, self._token)
            self._say(f"wrote {self._plan.env_file}")
        for line in env_file.exports(self._plan.variables):
            print(line, flush=True)
        self._say("ready; Ctrl-C ends it")

    async def _require(self, child: Child) -> None:
        how = await child.wait()
        words = await child.last_words()
        raise StartError(f"the {child.component.name} {how}; its last words:\n{words}")

    async def _follow(self, child: Child, slices: Slices, ready: "asyncio.Task[None]") -> None:
        how = await child.wait()
        if not ready.done():
            words = await child.last_words()
            raise StartError(f"the {child.component.name} {how}; its last words:\n{words}")
        slices.tell_end(child, how)

    async def _take_orders(self, slices: Slices, group: asyncio.TaskGroup) -> None:
        async def revive(index: int) -> str:
            # In a task of the group, so that it ends with the service.
            reviving = group.create_task(_caught(slices.revive(index)))
            result = await reviving
            if isinstance(result, control.ControlError):
                raise result
            return result

        self._orders = await control.listen(self._plan.control_socket, revive)

    async def _tell_news(self) -> None:
        """Tells what happens to slices, for ever."""
        plan = self._plan
        seen: tuple[int, int, int] | None = None
        # What has been said by now: that all have joined.
        last = Report(True, False, tuple(SliceReport(i, 1, True) for i in range(plan.slices)))
        while True:
            stamp = runtime_files.stamp(plan.report_file)
            if stamp != seen:
                seen, report = stamp, Report.read(plan.report_file)
                if report is not None:
                    for sentence in slice_news.sentences(last, report, plan.on_notice):
                        self._say(sentence)
                    last = report
            await asyncio.sleep(_NEWS_INTERVAL_S)

    def _is_alive(self, index: int) -> bool:
        report = Report.read(self._plan.report_file)
        return report is not None and report.slices[index].alive

    async def _start_worker(self, worker: Worker) -> Child:
        return await self._start(worker, echo=self._verbose)

    async def _start(self, component: serve_plan.Component, *, echo: bool) -> Child:
        # Shielded, so that no child is started and then forgotten when we are cancelled.
        start = asyncio.create_task(Child.start(component, echo=echo))
        try:
            child = await asyncio.shield(start)
        except asyncio.CancelledError:
            self._children.append(await start)
            raise
        self._children.append(child)
        return child

    async def _start_janitor(self) -> None:
        plan = self._plan
        self._janitor = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "pathways_emulator.janitor", str(plan.directory)),
            *(() if plan.env_file is None else (str(plan.env_file), self._token)),
            stdin=asyncio.subprocess.PIPE,
            # Not killed by the Ctrl-C that ends us, nor by the end of the terminal.
            start_new_session=True,
        )

    async def _end(self) -> None:
        """Ends what was started: first the promise, then what it promised."""
        if self._plan.env_file is not None:
            env_file.remove(self._plan.env_file, self._token)
        if self._orders is not None:
            self._orders.close()
        if self._children:
            await self._announce()
        running = [child for child in self._children if not child.ended]
        for child in running:
            # A worker takes SIGTERM for a notice, which would matter if it missed the announcement.
            worker = isinstance(child.component, Worker)
            child.send(signal.SIGINT if worker else signal.SIGTERM)
        gone = asyncio.create_task(_all_ended(running))
        again = asyncio.create_task(self._signals.get())
        events: set[asyncio.Task[None] | asyncio.Task[str]] = {gone, again}
        await asyncio.wait(events, timeout=_TERM_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
        for child in running:
            if not child.ended:
                self._say(f"the {child.component.name} does not end: killing it")
                child.send(signal.SIGKILL)
        await gone
        again.cancel()
        if self._janitor is not None and self._janitor.stdin is not None:
            self._janitor.stdin.close()
            await self._janitor.wait()
        self._say("ended; nothing is left")

    async def _announce(self) -> None:
        """Lets the workers go without anybody taking it for a loss."""
        import grpc

        from pathways_emulator import membership_client

        manager = self._plan.manager.address
        with contextlib.suppress(grpc.RpcError):
            await asyncio.to_thread(
                membership_client.announce_shutdown, manager, "serve ends", _ANNOUNCE_TIMEOUT_S
            )

    def _say(self, sentence: str) -> None:
        elapsed_s = time.monotonic() - self._started_s
        print(f"{elapsed_s:7.1f} s  {sentence}", file=sys.stderr, flush=True)


async def _caught(reviving: Coroutine[None, None, str]) -> str | control.ControlError:
    """A task of a group must not raise: that would end the group."""
    try:
        return await reviving
    except control.ControlError as error:
        return error
    except OSError as error:
        return control.ControlError(f"cannot start a worker: {error}")


async def _all_ended(children: list[Child]) -> None:
    for child in children:
        await child.wait()


async def _answers(address: Address) -> None:
    """Returns once a connection to `address` succeeds."""
    while True:
        try:
            _, writer = await asyncio.open_connection(address.host, address.port)
        except OSError:
            await asyncio.sleep(_PROBE_INTERVAL_S)
            continue
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        return
