# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Proxies and clients as real processes, and a conversation with them by lines."""

import contextlib
import dataclasses
import json
import os
import queue
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Protocol, Self

from pathways_emulator.membership import Membership, Notice, SliceMember

REPOSITORY = Path(__file__).parents[3]

START_TIMEOUT_S = 60
ANSWER_TIMEOUT_S = 60


class LineProcess:
    """A child that is spoken to and answers by lines; its stderr goes to a file."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self.log = log
        with log.open("ab") as stderr:
            self.process = subprocess.Popen(
                argv,
                cwd=REPOSITORY,
                env=dict(environment),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        assert self.process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(self.process.stdout,), daemon=True)
        self._reader.start()

    def _read(self, stdout: IO[str]) -> None:
        for line in stdout:
            self.heard(line.rstrip("\n"))
        self._lines.put(None)

    def heard(self, line: str) -> None:
        """Takes a line of the child, on a thread of its own."""
        self._lines.put(line)

    def say(self, line: str) -> None:
        """Sends a line."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hear(self, timeout_s: float = ANSWER_TIMEOUT_S) -> str:
        """The next line; fails the test with the child's log if it does not come."""
        try:
            line = self._lines.get(timeout=timeout_s)
        except queue.Empty:
            raise AssertionError(f"no line within {timeout_s} s; log:\n{self.tail()}") from None
        if line is None:
            code = self.process.wait(10)
            raise AssertionError(f"ended with {code}; log:\n{self.tail()}")
        return line

    def expect(self, line: str, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        """Fails unless the next line is this one."""
        heard = self.hear(timeout_s)
        assert heard == line, f"expected {line!r}, heard {heard!r}; log:\n{self.tail()}"

    def answers_within(self, timeout_s: float) -> bool:
        """Whether a line comes in this time; it is heard later all the same."""
        try:
            line = self._lines.get(timeout=timeout_s)
        except queue.Empty:
            return False
        self._lines.put(line)
        return True

    def wait_until(self, holds: Callable[[], bool], timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        """Waits for what no line tells of; fails the test if it does not come true."""
        deadline = time.monotonic() + timeout_s
        while not holds():
            assert time.monotonic() < deadline, self.tail()
            time.sleep(0.02)

    def tail(self) -> str:
        """The end of what the child logged."""
        return self.log.read_text(errors="replace")[-6000:]

    def finish(self, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        """Waits for a success."""
        code = self.process.wait(timeout_s)
        assert code == 0, f"exit code {code}; log:\n{self.tail()}"

    def close(self) -> None:
        """Ends the child, whatever it does."""
        self.process.kill()
        self.process.wait()
        self._reader.join()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class Proxy(LineProcess):
    """A proxy process whose membership the test decides."""

    def __init__(
        self,
        address: str,
        instance_type: str,
        slice_count: int,
        log: Path,
        *,
        mode: str = "suspend",
        lost_at_most: int | None = None,
        scratch: str | None = None,
        limits: Mapping[int, int] | None = None,
        members: Sequence[SliceMember] = (),
    ) -> None:
        """Starts it.

        Args:
            address: To listen on.
            instance_type: Of the slices.
            slice_count: All are alive at the start.
            log: For its stderr.
            mode: ``suspend`` or ``forward``.
            lost_at_most: Slices, without the end of the sessions; None for all of them.
            scratch: Location for the data of suspended slices; None for a directory beside the log.
            limits: Resource limits of the process, by ``resource.RLIMIT_*``.
            members: Slices that are something else than alive at the start.
        """
        self._released: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.scratch = Path(scratch or log.parent / "scratch")
        argv = [sys.executable, "-m", "tests.emulator.proxy.served", address, mode]
        argv += [str(slice_count if lost_at_most is None else lost_at_most)]
        super().__init__([*argv, scratch or str(self.scratch)], os.environ, log)
        for limit, value in (limits or {}).items():
            resource.prlimit(self.process.pid, limit, (value, value))
        self.address = address
        slices = {i: SliceMember(i, 1, True) for i in range(slice_count)}
        slices.update((member.index, member) for member in members)
        self.membership = Membership(instance_type, True, tuple(slices.values()))
        self.say(self._dump())
        self.expect("started", START_TIMEOUT_S)

    def heard(self, line: str) -> None:
        if line.startswith("released "):
            self._released.put(line.removeprefix("released "))
        else:
            super().heard(line)

    def notify(self, *indices: int, left_s: float = 60.0, reason: str = "SIGTERM") -> None:
        """These slices are about to go."""
        slices = self.membership.slices
        notice = Notice(reason, left_s)
        self.apply(*(dataclasses.replace(slices[index], notice=notice) for index in indices))

    def expect_release(self, index: int, reason: str, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        """Waits until the proxy lets the present run of a slice go, with this in its reason."""
        try:
            released = self._released.get(timeout=timeout_s)
        except queue.Empty:
            raise AssertionError(f"no release of {index}; log:\n{self.tail()}") from None
        expected = f"{index} {self.membership.slices[index].incarnation} "
        assert released.startswith(expected), released
        assert reason in released, released

    def expect_releases(self, *indices: int, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        """Waits until the proxy lets the present runs of these slices go, in any order."""
        expected = {f"{index} {self.membership.slices[index].incarnation}" for index in indices}
        while expected:
            try:
                released = self._released.get(timeout=timeout_s)
            except queue.Empty:
                raise AssertionError(f"no release of {expected}; log:\n{self.tail()}") from None
            expected.remove(" ".join(released.split(" ")[:2]))

    def drain_releases(self) -> None:
        """Forgets those that no test expected."""
        while not self._released.empty():
            self._released.get()

    def suspend(self, index: int) -> None:
        """Notice, release, end of a slice."""
        self.notify(index)
        self.expect_release(index, "saved")
        self.lose(index, "released")

    def saved_files(self) -> list[Path]:
        """What is in the scratch location."""
        return sorted(path for path in self.scratch.rglob("*") if path.is_file())

    def apply(self, *members: SliceMember, settled: bool = True) -> None:
        """Changes some slices; returns when the proxy has applied it."""
        slices = list(self.membership.slices)
        for member in members:
            slices[member.index] = member
        self.membership = dataclasses.replace(
            self.membership, settled=settled, slices=tuple(slices)
        )
        self.say(self._dump())
        self.expect("applied")

    def lose(self, index: int, reason: str = "host 0 ended: killed") -> None:
        """The slice dies."""
        self.apply(SliceMember(index, self.membership.slices[index].incarnation, False, reason))

    def revive(self, index: int) -> None:
        """The slice is up again, as a newer incarnation."""
        self.apply(SliceMember(index, self.membership.slices[index].incarnation + 1, True))

    def resident_bytes(self) -> int:
        """Memory of the proxy process."""
        statm = Path(f"/proc/{self.process.pid}/statm").read_text()
        return int(statm.split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def _dump(self) -> str:
        return json.dumps(dataclasses.asdict(self.membership))


class HasAddress(Protocol):
    """Whatever clients can be sent to."""

    address: str


class Client(LineProcess):
    """One of the programs in ``clients/``, an ordinary JAX program."""

    def __init__(
        self, program: str, proxy: HasAddress, log: Path, arguments: Sequence[str] = ()
    ) -> None:
        super().__init__(
            [sys.executable, "-m", f"tests.emulator.proxy.clients.{program}", *arguments],
            {
                **os.environ,
                "JAX_PLATFORMS": "proxy",
                "JAX_BACKEND_TARGET": f"grpc://{proxy.address}",
                "IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS": "true",
            },
            log,
        )

    def asked(self, words: str) -> str:
        """What it answers when it is told to do something; of ``clients/pause.py``."""
        self.say(words)
        return self.hear()
