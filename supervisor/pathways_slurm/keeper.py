# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""A set of processes that lives and dies as one.

A *keeper* is a forked child of the calling process and the parent of the set. As soon as one
process of the set ends, or the caller says so, it ends the rest: SIGTERM to every process below
it, SIGKILL to what is left after ``kill_wait_s``. Whatever single process is killed, none stays:

- a process of the set: the keeper ends the others, and all that any of them forked;
- the keeper: its processes have it as parent-death signal, and what they forked comes to the
  caller, a subreaper, which kills it;
- the caller: the keeper is told by its own parent-death signal and kills everything at once.

If caller and keeper are killed together, the set's processes still end, but not what they forked.

Standard library only; the caller must have a single thread.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pathways_slurm import processes

_KILL_AT_ONCE = signal.SIGHUP
_LOOK_AGAIN_S = 0.1

Phase = Literal["starting", "running", "ending", "ended"]


class Command(NamedTuple):
    """One process of a set. Its output is appended to ``log``, or inherited if that is None."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    log: Path | None
    headline: str = ""


class Exit(NamedTuple):
    """How one process ended: ``code`` if by exit, else ``signal``.

    ``first``: it ended by itself, before the set was told to end.
    """

    position: int
    code: int | None
    signal: int | None
    first: bool

    def __str__(self) -> str:
        if self.signal is None:
            return f"exited with code {self.code}"
        return f"ended by signal {self.signal} ({signal_name(self.signal)})"


def signal_name(number: int) -> str:
    """SIGKILL for 9; the number itself where there is no name (real-time signals)."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


class SignalInbox:
    """Signals as something to poll: each that arrives makes ``fileno()`` readable.

    Signals of a process are one thing, so only the newest inbox of a process receives.
    """

    def __init__(self, *numbers: signal.Signals) -> None:
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        for number in numbers:
            signal.signal(number, _noted)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)

    def fileno(self) -> int:
        return self._read

    def take(self) -> frozenset[int]:
        """The signals that have arrived since the last call; does not wait."""
        try:
            return frozenset(os.read(self._read, 65536))
        except BlockingIOError:
            return frozenset()


class Keeper:
    """The caller's end. Poll ``fileno()``, call ``advance`` when it is readable.

    Attributes:
        phase: starting → running → ending → ended. When it is ended no process is left.
        pids: Of the set's processes in the order given, from "running" on.
        exits: How they ended, in the order in which they did; complete once ended.
        error: Why the set could not be started or kept, or "".
    """

    def __init__(self, commands: Sequence[Command], *, kill_wait_s: float) -> None:
        """Forks the keeper, which starts the set.

        The calling process must be a subreaper (``processes.become_subreaper``).

        Raises:
            OSError: No process could be forked.
        """
        self.phase: Phase = "starting"
        self.pids: tuple[int, ...] = ()
        self.exits: tuple[Exit, ...] = ()
        self.error = ""
        self._buffer = b""
        self._read, write = os.pipe2(os.O_CLOEXEC)
        parent = os.getpid()
        with _blocked_signals():
            self._pid = os.fork()
            if self._pid == 0:
                _keep(commands, kill_wait_s, write, parent)
        os.close(write)

    def fileno(self) -> int:
        return self._read

    def advance(self) -> None:
        """Takes what the keeper says. Waits until it says something, so poll first."""
        chunk = os.read(self._read, 65536)
        if not chunk:
            self._conclude()
            return
        *lines, self._buffer = (self._buffer + chunk).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if "pids" in message:
                self.pids = tuple(message["pids"])
            if "error" in message:
                self.error = message["error"]
            if "exits" in message:
                self.exits = tuple(Exit(*fields) for fields in message["exits"])
            self.phase = message["phase"]

    def stop(self) -> None:
        """Ends the set: SIGTERM, then SIGKILL after the kill wait. Returns at once."""
        if self.phase != "ended":
            # The keeper is our child and not reaped yet, so its pid is still its own.
            os.kill(self._pid, signal.SIGTERM)

    def _conclude(self) -> None:
        os.close(self._read)
        _, status = os.waitpid(self._pid, 0)
        # Nothing, unless the keeper was killed: then its processes and theirs are ours to end.
        reaped = processes.kill_descendants()
        if self.phase != "ending" or len(self.exits) < len(self.pids) or status != 0:
            known = {exit_.position for exit_ in self.exits}
            lost = [
                _exit(position, reaped[pid], first=False)
                for position, pid in enumerate(self.pids)
                if position not in known and pid in reaped
            ]
            self.exits += tuple(lost)
            self.error = self.error or (
                f"the process that kept them {_exit(0, status, first=True)} unexpectedly"
            )
        self.phase = "ended"


@contextlib.contextmanager
def _blocked_signals() -> Iterator[None]:
    """Keeps a signal for the parent from being handled in the child, and the other way round."""
    before = signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _noted(_number: int, _frame: object) -> None:
    """The inbox's pipe has it already."""


def _exit(position: int, status: int, *, first: bool) -> Exit:
    code = os.waitstatus_to_exitcode(status)
    return Exit(position, code if code >= 0 else None, -code if code < 0 else None, first)


def _keep(commands: Sequence[Command], kill_wait_s: float, channel: int, parent: int) -> None:
    """Everything the forked child does. Never returns."""
    status = 1
    try:
        status = _KeeperProcess(kill_wait_s, channel, parent).run(commands)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        raise
    finally:
        os._exit(status)


class _KeeperProcess:
    """The keeper itself: single-threaded, woken by signals only."""

    def __init__(self, kill_wait_s: float, channel: int, parent: int) -> None:
        self._kill_wait_s = kill_wait_s
        self._channel = channel
        self._parent = parent
        self._positions: dict[int, int] = {}
        self._children: list[subprocess.Popen[bytes]] = []
        self._exits: list[Exit] = []
        self._stopping = False
        self._kill_now = False

    def run(self, commands: Sequence[Command]) -> int:
        self._inbox = SignalInbox(signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, _KILL_AT_ONCE)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        processes.become_subreaper()
        processes.set_parent_death_signal(_KILL_AT_ONCE, self._parent)
        error = self._start(commands)
        if error:
            self._end()
            self._say(phase="ending", error=error, exits=self._exits)
            return 0
        self._say(phase="running", pids=list(self._positions))
        while not (self._stopping or self._exits):
            self._wait(None)
        self._say(phase="ending", exits=self._exits)
        self._end()
        self._say(phase="ending", exits=self._exits)
        return 0

    def _start(self, commands: Sequence[Command]) -> str:
        for position, command in enumerate(commands):
            try:
                child = _spawn(command)
            except (OSError, subprocess.SubprocessError) as fault:
                return f"could not start {command.argv[0]}: {fault}"
            self._positions[child.pid] = position
            # Held, because the module reaps children whose objects are gone, and takes their
            # status with it.
            self._children.append(child)
        return ""

    def _wait(self, timeout_s: float | None) -> None:
        select.select([self._inbox], [], [], timeout_s)
        received = self._inbox.take()
        if _KILL_AT_ONCE in received:
            self._kill_now = True
            self._stopping = True
        if received & {signal.SIGTERM, signal.SIGINT}:
            self._stopping = True
        self._reap()

    def _reap(self) -> None:
        """Collects what has ended. One that failed counts before one that did not."""
        batch = []
        with contextlib.suppress(ChildProcessError):
            while (result := os.waitpid(-1, os.WNOHANG))[0] != 0:
                batch.append(result)
        first = not (self._stopping or self._exits)
        for pid, status in sorted(batch, key=lambda result: result[1] == 0):
            self._note(pid, status, first)

    def _note(self, pid: int, status: int, first: bool) -> None:
        position = self._positions.get(pid)
        if position is not None:
            self._exits.append(_exit(position, status, first=first))

    def _end(self) -> None:
        deadline = time.monotonic() + self._kill_wait_s
        told: set[processes.ProcessIdentity] = set()
        while not self._kill_now and (remaining := deadline - time.monotonic()) > 0:
            if not processes.has_children():
                break
            # Again for those that appear meanwhile: a shell may start its clean-up late.
            for process in processes.descendants(os.getpid()):
                if process not in told:
                    processes.send_signal(process, signal.SIGTERM)
                    told.add(process)
            # What is forked sends us no signal, hence the upper bound.
            self._wait(min(remaining, _LOOK_AGAIN_S))
        self._stopping = True
        for pid, status in processes.kill_descendants().items():
            self._note(pid, status, first=False)

    def _say(self, **message: Any) -> None:
        # If nobody listens the caller has ended, and the signal that says so is on its way.
        with contextlib.suppress(BrokenPipeError):
            os.write(self._channel, json.dumps(message).encode() + b"\n")


def _spawn(command: Command) -> subprocess.Popen[bytes]:
    """Starts one process in a session of its own that ends with this process."""
    keeper = os.getpid()

    def in_child() -> None:
        # Safe after fork: this process has no other thread.
        processes.set_parent_death_signal(signal.SIGKILL, keeper)
        # An ignored signal stays ignored across exec; our own handlers do not stay.
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())

    output = None if command.log is None else _open_log(command.log)
    try:
        if output is not None and command.headline:
            os.write(output, f"{command.headline}\n".encode())
        return subprocess.Popen(
            command.argv,
            env=dict(command.env),
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=in_child,
        )
    finally:
        if output is not None:
            os.close(output)


def _open_log(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
