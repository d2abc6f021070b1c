# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Child processes of `serve`: they write into our log and end with us, however we end."""

import asyncio
import contextlib
import os
import signal
import sys
from collections import deque
from pathlib import Path

from pathways_emulator import pdeathsig, processes
from pathways_emulator.serve_plan import Component

_TAIL_LINES = 15
_MAX_LINE_BYTES = 1 << 20


class Child:
    """A running component. Make one with `start`."""

    def __init__(self, component: Component, process: asyncio.subprocess.Process) -> None:
        self.component = component
        self._process = process
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._pump: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, component: Component, *, echo: bool) -> "Child":
        """Starts the component.

        Must run in the main thread: the child is killed when the thread that started it ends.

        Args:
            component: What to run.
            echo: Whether its output is passed on to standard error.
        """
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            # No site-packages: the shim needs none, and starts in a few milliseconds.
            *("-I", "-S"),
            str(Path(pdeathsig.__file__)),
            str(os.getpid()),
            *component.argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=dict(component.environment),
            # A terminal's Ctrl-C is for us; we end the children in order.
            start_new_session=True,
            limit=_MAX_LINE_BYTES,
        )
        child = cls(component, process)
        child._pump = asyncio.create_task(child._read(echo))
        return child

    @property
    def ended(self) -> bool:
        return self._process.returncode is not None

    @property
    def exit_code(self) -> int | None:
        """As subprocess has it: a signal's is negative. None while it has not ended."""
        return self._process.returncode

    @property
    def running(self) -> bool:
        """Whether it can do anything: it has neither ended nor been stopped by a signal."""
        # Not from the exit code, which is known a moment after the end.
        return processes.can_run(self.pid)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def wait(self) -> str:
        """Waits for its end; how it ended, for people."""
        code = await self._process.wait()
        if code < 0:
            return f"was ended by {signal.Signals(-code).name}"
        return f"ended with exit code {code}"

    async def last_words(self) -> str:
        """The end of its output, once it has ended."""
        if self._pump is not None:
            await self._pump
        return "\n".join(f"    {line}" for line in self._tail)

    def send(self, number: signal.Signals) -> None:
        """Sends a signal; does nothing if it has ended."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def _read(self, echo: bool) -> None:
        output = self._process.stdout
        assert output is not None  # It is a pipe.
        while True:
            try:
                line = await output.readline()
            except ValueError:
                continue  # Longer than the limit: dropped.
            if not line:
                return
            text = line.decode(errors="replace").rstrip()
            self._tail.append(text)
            if echo:
                print(f"[{self.component.name}] {text}", file=sys.stderr, flush=True)
