# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The workers that `serve` runs, slice by slice: started, followed, and started again."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from pathways_emulator.address import Address
from pathways_emulator.children import Child
from pathways_emulator.control import ControlError
from pathways_emulator.exit_codes import ExitCode
from pathways_emulator.serve_plan import Worker

# Between the word to end and the end of a worker; more only if it hangs.
_END_TIMEOUT_S = 2.0
# Not worth a word: the worker did as it was told, and the slice's own news says why.
_AS_TOLD = (ExitCode.ENDED, ExitCode.STOPPED)


@dataclass(slots=True)
class _Run:
    """The newest run of a slice."""

    incarnation: int = 0
    workers: list[Child] = field(default_factory=list)
    # One start at a time.
    starting: asyncio.Lock = field(default_factory=asyncio.Lock)


class Slices:
    """All slices of a service."""

    def __init__(
        self,
        workers: tuple[Worker, ...],
        start: Callable[[Worker], Awaitable[Child]],
        answers: Callable[[Address], Awaitable[None]],
        is_alive: Callable[[int], bool],
        say: Callable[[str], None],
        ready_timeout_s: float,
        group: asyncio.TaskGroup,
    ) -> None:
        """
        Args:
            workers: Of the first run of each slice.
            start: Starts one.
            answers: Returns once something listens on an address.
            is_alive: Whether the resource manager counts a slice as such.
            say: Tells people a sentence.
            ready_timeout_s: Within which a slice that is revived must have joined.
            group: For tasks that live as long as the service.
        """
        self._plan = workers
        self._start = start
        self._answers = answers
        self._is_alive = is_alive
        self._say = say
        self._ready_timeout_s = ready_timeout_s
        self._group = group
        self._runs = {worker.slice_index: _Run() for worker in workers}

    async def start_all(self) -> list[Child]:
        """Starts the first run of each slice; returns all workers."""
        for worker in self._plan:
            run = self._runs[worker.slice_index]
            run.incarnation = 1
            run.workers.append(await self._start(worker))
        return [child for run in self._runs.values() for child in run.workers]

    async def follow(self, child: Child) -> None:
        """Waits for a worker's end, and tells of it."""
        self.tell_end(child, await child.wait())

    def tell_end(self, child: Child, how: str) -> None:
        """Tells how a worker has ended, if that was not as it was told."""
        if child.exit_code not in _AS_TOLD:
            self._say(f"the {child.component.name} (pid {child.pid}) {how}")

    async def revive(self, index: int) -> str:
        """Starts the workers of a slice again, as a new incarnation; it is alive on return.

        Whatever is left of the run before is killed: a stopped worker would hold on to its port.

        Returns:
            What was done, for people.

        Raises:
            ControlError: There is no such slice, it is alive and none of its workers is stopped, or
                the new ones did not come up.
        """
        run = self._runs.get(index)
        if run is None:
            raise ControlError(f"there is no slice {index}; valid is 0 to {len(self._runs) - 1}")
        async with run.starting:
            if self._is_alive(index) and all(child.running for child in run.workers):
                raise ControlError(
                    f"slice {index} runs (incarnation {run.incarnation}); end it first, for "
                    f"example by: pathways-emulator kill {index}"
                )
            await self._clear(index, run)
            run.incarnation += 1
            run.workers = []
            for worker in self._plan:
                if worker.slice_index == index:
                    child = await self._start(_of_run(worker, run.incarnation))
                    run.workers.append(child)
                    self._group.create_task(self.follow(child))
            await self._become_ready(index, run)
        return f"slice {index} is back (incarnation {run.incarnation})"

    async def _clear(self, index: int, run: _Run) -> None:
        """Sees to it that nothing is left of a run."""
        ending = [asyncio.create_task(child.wait()) for child in run.workers if child.running]
        if ending and not self._is_alive(index):
            # They have been told to end.
            await asyncio.wait(ending, timeout=_END_TIMEOUT_S)
        left = [child for child in run.workers if not child.ended]
        if left:
            names = ", ".join(f"{child.component.name} (pid {child.pid})" for child in left)
            self._say(f"killing what is left of slice {index}: {names}")
        for child in left:
            child.send(signal.SIGKILL)
            await child.wait()
        for task in ending:
            await task

    async def _become_ready(self, index: int, run: _Run) -> None:
        ready = asyncio.gather(*(self._answers(c.component.address) for c in run.workers))
        ends = [asyncio.create_task(child.wait()) for child in run.workers]
        events: set[asyncio.Future[list[None]] | asyncio.Future[str]] = {ready, *ends}
        try:
            await asyncio.wait(
                events, timeout=self._ready_timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
            for child, end in zip(run.workers, ends, strict=True):
                if end.done():
                    words = await child.last_words()
                    raise ControlError(
                        f"the {child.component.name} {end.result()}; its last words:\n{words}"
                    )
            if not ready.done():
                raise ControlError(f"slice {index} not ready after {self._ready_timeout_s:g} s")
        finally:
            for event in events:
                event.cancel()
            await asyncio.gather(*events, return_exceptions=True)


def _of_run(worker: Worker, incarnation: int) -> Worker:
    environment = {**worker.environment, "PATHWAYS_INCARNATION": str(incarnation)}
    return replace(worker, environment=environment)
