# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""RM and proxy as processes: start one under a guard, recognise it later, stop it.

All that is known of a component is in its guard's status file, so a supervisor that was restarted
sees it as the one that started it did. Nobody here is a parent: the guard is detached at its
start, so init (or the nearest subreaper) reaps it, and the guard reaps the component.
"""

import contextlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pathways_slurm import processes
from pathways_slurm.files import make_private_dir
from pathways_slurm.locks import try_lock
from pathways_slurm.processes import ProcessIdentity

# After the guard's own grace: the time to kill, reap and write the status.
_MARGIN_S = 5.0


@dataclass(frozen=True, slots=True)
class ComponentStatus:
    """What a status file says, checked against the processes that live now.

    Attributes:
        alive: The component's process lives.
        pid: Of the component; None if it never started.
        exit_code: Once it ended by exit, and its guard lived to see it.
        signal: That ended it, likewise.
        started_at: Unix time in seconds; None if it never started.
        ended_at: Likewise, of its end.
        reason: Why it ended or could not start, in words; "" while it runs.
        component: Identity of the component's process, if it was alive when the guard looked.
        guard: Identity of the guard's process.
    """

    alive: bool
    pid: int | None
    exit_code: int | None
    signal: int | None
    started_at: float | None
    ended_at: float | None
    reason: str
    component: ProcessIdentity | None
    guard: ProcessIdentity | None


def spawn_guard(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    root: ProcessIdentity,
    status: Path,
    log: Path,
    grace_s: float = 10.0,
) -> bool:
    """Starts ``argv`` under a guard that outlives this process but not ``root``.

    Returns before the component runs: ``status`` appears once it does, or could not. The status
    file of an earlier run is removed first.

    Args:
        argv: The component's program (an absolute path) and arguments.
        env: Its whole environment.
        root: The process with which it ends.
        status: Where the guard keeps its status file.
        log: Output of the component and of the guard, appended.
        grace_s: From SIGTERM to SIGKILL.

    Returns:
        False if a guard of ``status`` lives already, perhaps started by a supervisor that was
        killed a moment ago: nothing was done.

    Raises:
        OSError: No process could be started, or a directory or file could not be written.
    """
    make_private_dir(status.parent)
    make_private_dir(log.parent)
    guard = [
        *(sys.executable, "-P", "-m", "pathways_slurm.guard"),
        *("--root-pid", str(root.pid), "--root-start-time", str(root.start_time)),
        *("--status", str(status.absolute()), "--log", str(log.absolute())),
        *("--grace", str(grace_s), "--", *argv),
    ]
    lock = try_lock(_lock_path(status))
    if lock is None:
        return False
    try:
        status.unlink(missing_ok=True)
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            # The guard inherits the lock and holds it as long as anything of it lives.
            processes.start_detached(guard, env=env, output=output, pass_fds=[lock])
        finally:
            os.close(output)
    finally:
        os.close(lock)
    return True


def read_status(path: Path) -> ComponentStatus | None:
    """What is known of the component, or None if there is no status file (yet).

    Raises:
        ValueError: The file is not a guard's status file.
        OSError: It can't be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    try:
        fields = json.loads(text)
        component = _identity(fields, "pid", "start_time")
        return ComponentStatus(
            alive=component is not None and processes.is_alive(component),
            pid=fields.get("pid"),
            exit_code=fields.get("exit_code"),
            signal=fields.get("signal"),
            started_at=fields.get("started_at"),
            ended_at=fields.get("ended_at"),
            reason=str(fields.get("reason") or fields.get("error") or ""),
            component=component,
            guard=_identity(fields, "guard_pid", "guard_start_time"),
        )
    except (ValueError, TypeError, AttributeError, KeyError) as fault:
        raise ValueError(f"{path} is not a status file of a guard: {fault}") from fault


def wait_started(path: Path, timeout_s: float) -> ComponentStatus | None:
    """The status once there is one, or None after ``timeout_s`` seconds."""
    deadline = time.monotonic() + timeout_s
    while (status := read_status(path)) is None and time.monotonic() < deadline:
        time.sleep(0.01)
    return status


def wait(path: Path, timeout_s: float) -> bool:
    """Waits until component and guard have ended; False if they have not after ``timeout_s``."""
    deadline = time.monotonic() + timeout_s
    status = read_status(path)
    if status is None:
        return not _guard_lives(path)
    # The guard ends after the component; that of a killed guard may still be on its way.
    return all(
        _wait_ended(process, deadline)
        for process in (status.guard, status.component)
        if process is not None
    )


def stop(path: Path, grace_s: float) -> ComponentStatus | None:
    """Ends the component and its guard, and returns the last status.

    SIGTERM to the guard, which gives the component its own grace time. If that has not ended both
    after ``grace_s`` and a few seconds, the guard is killed, and with it all that is below it.
    Fine if it has ended already, or never started.

    Raises:
        TimeoutError: Its processes are still there, though killed.
    """
    status = read_status(path)
    if status is None and _guard_lives(path):
        status = wait_started(path, _MARGIN_S)
    if status is None:
        return None
    if status.guard is not None:
        processes.send_signal(status.guard, signal.SIGTERM)
    if not wait(path, grace_s + _MARGIN_S):
        if status.guard is not None:
            processes.send_signal(status.guard, signal.SIGKILL)
        if not wait(path, _MARGIN_S):
            raise TimeoutError(f"process {status.pid} of {path} does not end, though killed")
    return read_status(path)


def _lock_path(status: Path) -> Path:
    return status.with_name(f"{status.name}.lock")


def _guard_lives(status: Path) -> bool:
    if not status.parent.exists():
        return False
    lock = try_lock(_lock_path(status))
    if lock is None:
        return True
    os.close(lock)
    return False


def _identity(fields: Mapping[str, Any], pid: str, start_time: str) -> ProcessIdentity | None:
    if fields.get(pid) is None or fields.get(start_time) is None:
        return None
    return ProcessIdentity(int(fields[pid]), int(fields[start_time]), str(fields["boot_id"]))


def _wait_ended(process: ProcessIdentity, deadline: float) -> bool:
    descriptor = processes.open_pidfd(process)
    if descriptor is None:
        return True
    with contextlib.closing(os.fdopen(descriptor, "rb", buffering=0)):
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(max(0.0, deadline - time.monotonic()) * 1000))
