# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""RM and proxy as processes: start one under a guard, recognise it later, stop it.

All that is known of a component is on disk: a status file that its guard writes, and a lock beside
it that the guard holds as long as anything of it lives. So a supervisor that was restarted sees a
component as the one that started it did. Nobody here is a parent: the guard is detached at its
start, so init (or the nearest subreaper) reaps it, and the guard reaps the component.
"""

import fcntl
import json
import os
import select
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pathways_slurm import processes
from pathways_slurm.files import make_private_dir
from pathways_slurm.keeper import signal_name
from pathways_slurm.locks import try_lock
from pathways_slurm.processes import ProcessIdentity

_LOOK_AGAIN_S = 0.01


@dataclass(frozen=True, slots=True)
class ComponentStatus:
    """A component at one moment.

    Attributes:
        alive: It starts, runs or ends: its guard lives, or something it has to end.
        pid: Of its process, once it has started.
        exit_code: Once it ended by exit, and its guard lived to see it.
        signal: That ended it, likewise.
        started_at: Unix time in seconds.
        ended_at: Likewise.
        ended: How it ended or why it could not start, in words ("ended by signal 9 (SIGKILL)");
            "" while it is alive, or if it was never started.
        guard: The guard's process, once it has started the component.
    """

    alive: bool
    pid: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    started_at: float | None = None
    ended_at: float | None = None
    ended: str = ""
    guard: ProcessIdentity | None = None


@dataclass(frozen=True)
class ComponentProcess:
    """One component of a service; the object itself holds nothing that is not on disk.

    Attributes:
        status_file: Written by the guard; its directory need not exist yet.
        log: Output of the component and of its guard, appended.
        root: The process with which it ends.
        grace_s: From SIGTERM to SIGKILL, at its end.
        withdraw: Discovery file and run id; the file goes with the component, if it is that run's.
    """

    status_file: Path
    log: Path
    root: ProcessIdentity
    grace_s: float = 10.0
    withdraw: tuple[Path, str] | None = None

    def start(self, argv: Sequence[str], env: Mapping[str, str]) -> bool:
        """Starts the component, and returns before it runs. What comes of it is in ``status``.

        Args:
            argv: Program (an absolute path) and arguments.
            env: Its whole environment.

        Returns:
            False if it is alive already, perhaps started by a supervisor that was killed a moment
            ago: nothing was done.

        Raises:
            OSError: No process could be started, or a directory or file could not be written.
        """
        make_private_dir(self.status_file.parent)
        make_private_dir(self.log.parent)
        lock = try_lock(_lock_path(self.status_file))
        if lock is None:
            return False
        try:
            self.status_file.unlink(missing_ok=True)
            self._spawn_guard(argv, env, lock)
        finally:
            os.close(lock)
        return True

    def status(self) -> ComponentStatus:
        """See :func:`read_status`."""
        return read_status(self.status_file)

    def stop(self) -> None:
        """Has the guard end it, and returns at once. Fine if it has ended, or just starts.

        One that has no status yet can't be told: call again while ``status().alive``.
        """
        guard = self.status().guard
        if guard is not None:
            processes.send_signal(guard, signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL to the guard, which takes all below it along: for what does not end when told."""
        guard = self.status().guard
        if guard is not None:
            processes.send_signal(guard, signal.SIGKILL)

    def wait_ended(self, timeout_s: float) -> bool:
        """Waits until nothing of it lives; False if that takes longer than ``timeout_s``."""
        deadline = time.monotonic() + timeout_s
        while (status := self.status()).alive:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return False
            if status.guard is None or not _wait_for(status.guard, remaining):
                time.sleep(_LOOK_AGAIN_S)
        return True

    def _spawn_guard(self, argv: Sequence[str], env: Mapping[str, str], lock: int) -> None:
        guard = [
            *(sys.executable, "-P", "-m", "pathways_slurm.guard"),
            *("--root-pid", str(self.root.pid)),
            *("--root-start-time", str(self.root.start_time)),
            *("--status", str(self.status_file.absolute()), "--log", str(self.log.absolute())),
            *("--grace", str(self.grace_s)),
        ]
        if self.withdraw is not None:
            path, run_id = self.withdraw
            guard += ["--withdraw", str(path.absolute()), run_id]
        guard += ["--", *argv]
        output = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            # The guard inherits the lock; its component does not.
            processes.start_detached(guard, env=env, output=output, pass_fds=[lock])
        finally:
            os.close(output)


def read_status(path: Path) -> ComponentStatus:
    """What is known of the component whose guard writes ``path``.

    A file that is not a guard's tells nothing more than its lock does.

    Raises:
        OSError: It can't be read.
    """
    # First, because what has ended has written its last word.
    alive = _is_locked(_lock_path(path))
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ComponentStatus(alive)
    try:
        return _parse(json.loads(text), alive)
    except (ValueError, TypeError, AttributeError, KeyError):
        unknown = "" if alive else f"ended, and {path} does not say how: it is damaged"
        return ComponentStatus(alive, ended=unknown)


def _parse(fields: Mapping[str, object], alive: bool) -> ComponentStatus:
    # A status file is ours, but other hands may have been there: every field is checked.
    exit_code, number = _optional_int(fields, "exit_code"), _optional_int(fields, "signal")
    guard_pid = _optional_int(fields, "guard_pid")
    guard_start_time = _optional_int(fields, "guard_start_time")
    guard = None
    if guard_pid is not None and guard_start_time is not None:
        guard = ProcessIdentity(guard_pid, guard_start_time, str(fields["boot_id"]))
    ended = ""
    if not alive:
        ended = str(fields.get("error", "")) or _words(exit_code, number)
    return ComponentStatus(
        alive=alive,
        pid=_optional_int(fields, "pid"),
        exit_code=exit_code,
        signal=number,
        started_at=_optional_float(fields, "started_at"),
        ended_at=_optional_float(fields, "ended_at"),
        ended=ended,
        guard=guard,
    )


def _words(exit_code: int | None, number: int | None) -> str:
    if number is not None:
        return f"ended by signal {number} ({signal_name(number)})"
    if exit_code is not None:
        return f"exited with code {exit_code}"
    return "ended with its guard, which was killed"


def _optional_int(fields: Mapping[str, object], name: str) -> int | None:
    value = fields.get(name)
    if value is None or isinstance(value, int):
        return value
    raise ValueError(f"{name} is {value!r}, not a number")


def _optional_float(fields: Mapping[str, object], name: str) -> float | None:
    value = fields.get(name)
    if value is None or isinstance(value, int | float):
        return value
    raise ValueError(f"{name} is {value!r}, not a number")


def _lock_path(status_file: Path) -> Path:
    return status_file.with_name(f"{status_file.name}.lock")


def _is_locked(path: Path) -> bool:
    # Neither created nor opened for writing: looking must work on a disk that takes nothing.
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _wait_for(process: ProcessIdentity, timeout_s: float) -> bool:
    """Waits for a process's end; False at once if it has ended before."""
    descriptor = processes.open_pidfd(process)
    if descriptor is None:
        return False
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        poll.poll(timeout_s * 1000)
    finally:
        os.close(descriptor)
    return True
