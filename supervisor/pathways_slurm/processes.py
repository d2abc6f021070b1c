# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Processes of this machine: who they are, whether they live, and how to reach them safely.

Standard library only and quick to import: task runners and guards start through here.
Linux only (/proc, pidfds, prctl).
"""

import ctypes
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

# From linux/prctl.h.
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

# More than /proc/PID/stat can hold: 52 numbers and a name of 64 bytes.
_STAT_SIZE = 4096

# Variables that a shell adds to its environment.
_SHELLS_OWN = ("PWD", "OLDPWD", "SHLVL")

_libc = ctypes.CDLL(None, use_errno=True)


class ProcessIdentity(NamedTuple):
    """One process for all time. A pid alone is used again, also after a reboot.

    Attributes:
        pid: As in this process's pid namespace.
        start_time: Clock ticks from boot to the process's start: field 22 of ``/proc/PID/stat``.
        boot_id: Of the boot it belongs to, from ``/proc/sys/kernel/random/boot_id``.
    """

    pid: int
    start_time: int
    boot_id: str


class _Stat(NamedTuple):
    state: str
    parent: int
    start_time: int


def boot_id() -> str:
    """The id of the machine's present boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def identify(pid: int) -> ProcessIdentity | None:
    """The identity of the process that has ``pid`` now, or None if none lives."""
    stat = _stat(pid)
    return None if stat is None else ProcessIdentity(pid, stat.start_time, boot_id())


def is_alive(process: ProcessIdentity) -> bool:
    """Whether that very process lives. One that ended but was not reaped does not."""
    return identify(process.pid) == process


def open_pidfd(process: ProcessIdentity) -> int | None:
    """A pidfd of that very process (readable once it ends), or None if it has ended."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return None
    # Checked after opening: from here on the descriptor can't come to mean another process.
    if is_alive(process):
        return descriptor
    os.close(descriptor)
    return None


def send_signal(process: ProcessIdentity, number: signal.Signals) -> bool:
    """Signals that very process; False if it has ended."""
    descriptor = open_pidfd(process)
    if descriptor is None:
        return False
    try:
        signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True


def initial_environment() -> dict[str, str]:
    """What this process was started with: Python itself may have added LC_CTYPE since."""
    raw = os.fsdecode(Path("/proc/self/environ").read_bytes())
    return dict(item.split("=", 1) for item in raw.split("\0") if "=" in item)


def descendants(pid: int) -> list[ProcessIdentity]:
    """All live processes below ``pid``, parents before their children."""
    boot = boot_id()
    children: dict[int, list[ProcessIdentity]] = {}
    dead: set[int] = set()
    with os.scandir("/proc") as entries:
        pids = [int(entry.name) for entry in entries if entry.name.isdigit()]
    for one in pids:
        if (stat := _read_stat(one)) is not None:
            child = ProcessIdentity(one, stat.start_time, boot)
            children.setdefault(stat.parent, []).append(child)
            if stat.state in "ZX":
                dead.add(child.pid)
    found = list(children.get(pid, ()))
    for process in found:  # grows while it is walked: breadth first
        found.extend(children.get(process.pid, ()))
    return [process for process in found if process.pid not in dead]


def kill_descendants() -> dict[int, int]:
    """Ends every process below this one with SIGKILL and reaps them.

    Complete only for a subreaper: there, whatever a killed process had forked comes to us.
    Returns once none is left.

    Returns:
        pid → wait status of the children that were reaped here.
    """
    reaped: dict[int, int] = {}
    while has_children():
        for process in descendants(os.getpid()):
            send_signal(process, signal.SIGKILL)
        # After each reaping we look again: what the process forked in its last moment is ours now.
        pid, status = os.waitpid(-1, 0)
        reaped[pid] = status
    return reaped


def has_children() -> bool:
    """Whether this process has any child, live or not yet reaped. Cheap."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def become_subreaper() -> None:
    """Descendants whose parents end become this process's children, not init's."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def set_parent_death_signal(number: signal.Signals, parent: int) -> None:
    """Has the kernel send ``number`` to this process when its parent ends.

    Survives exec of an ordinary program; an exec that changes credentials clears it.

    Args:
        number: The signal.
        parent: The pid of the parent, as it was before the fork.

    Raises:
        ProcessLookupError: The parent ended before this call, so no signal will ever come.
    """
    _prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        raise ProcessLookupError(f"parent process {parent} has ended")


def start_detached(
    argv: Sequence[str], *, env: Mapping[str, str], output: int, pass_fds: Sequence[int] = ()
) -> None:
    """Starts a program that outlives this process and never becomes a zombie of it.

    A shell is its parent for a moment and ends at once, so init (or the nearest subreaper) reaps
    it. It is in a session of its own, without a terminal; its standard input is /dev/null.

    Args:
        argv: Program and arguments.
        env: Its whole environment; where /bin/sh is bash, it also gets ``_``.
        output: Descriptor for its standard output and error.
        pass_fds: Descriptors that it inherits under the same numbers.

    Raises:
        OSError: No process could be started. A fault of the program itself shows in its output.
    """
    # Not os.fork: the caller may have threads. The arguments reach the shell as data ("$@").
    script = "".join(f"unset {name}; " for name in _SHELLS_OWN if name not in env) + '"$@" &'
    launcher = ["/bin/sh", "-c", script, "sh", *argv]
    result = subprocess.run(
        launcher,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        pass_fds=tuple(pass_fds),
        start_new_session=True,
        check=False,
    )
    if result.returncode != 0:
        raise OSError(f"could not start {argv[0]}: the shell ended with {result.returncode}")


def _stat(pid: int) -> _Stat | None:
    stat = _read_stat(pid)
    return None if stat is None or stat.state in "ZX" else stat


def _read_stat(pid: int) -> _Stat | None:
    # Not by Path and text files: this is read for every process there is.
    try:
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        text = os.read(descriptor, _STAT_SIZE)
    except ProcessLookupError:
        return None
    finally:
        os.close(descriptor)
    # The name in parentheses may hold spaces and parentheses; the fields after it can't.
    fields = text.rpartition(b")")[2].split()
    return _Stat(state=chr(fields[0][0]), parent=int(fields[1]), start_time=int(fields[19]))


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}, {value}): {os.strerror(number)}")
