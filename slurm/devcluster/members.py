# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The processes of a cluster, found by what they are, not by what was written down.

So nothing is missed after a kill -9 of anything, and nothing else is taken for a member because a
pid was used again. Only what the invoking user's processes say of themselves is believed; those of
others are members if they are in a node's PID namespace, or descend from a member.
"""

import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

# In the environment of every daemon and, through the task prolog, of every task.
DIRECTORY_VARIABLE = "DEVCLUSTER_DIR"
NODE_VARIABLE = "DEVCLUSTER_NODE"

# Debian's programs are links to NAME-wlm.
_DAEMONS = ("munged", "slurmctld", "slurmd", "slurmstepd")

# The first process of a node's PID namespace; see machine.sh.
INIT = "init"
_INIT_PROGRAM = "sleep"

_POLL_S = 0.02
_LOOKS_TO_BE_SURE = 3
_LOOKS_AT_MOST = 5


@dataclass(frozen=True)
class Member:
    """A process of the cluster.

    Attributes:
        process: Recognised by pid and start time.
        daemon: munged, slurmctld, slurmd, slurmstepd or INIT; None for what a job runs.
        node: Where it runs; None for munged, slurmctld, and the programs that slurmctld runs.
    """

    process: psutil.Process
    daemon: str | None
    node: str | None

    def __str__(self) -> str:
        return f"{self.daemon or 'job process'} {self.process.pid} on {self.node or 'controller'}"


@dataclass(frozen=True)
class _Seen:
    """What /proc tells of one process.

    Attributes:
        namespace: Its PID namespace.
        account: What it says of itself; None if it is another user's.
    """

    process: psutil.Process
    parent: int
    namespace: int
    account: "_Account | None"


@dataclass(frozen=True)
class _Account:
    """What a process is by its own doing."""

    program: str
    cwd: str
    argv: Sequence[str]
    environment: dict[str, str]


def marked(environment: Mapping[str, str], directory: Path, node: str | None) -> dict[str, str]:
    """The environment of a member of the cluster, on that node."""
    marks = {DIRECTORY_VARIABLE: str(directory)}
    if node is not None:
        marks[NODE_VARIABLE] = node
    return {**environment, **marks}


def find(directory: Path) -> list[Member]:
    """The cluster's processes that live now, but for this process and those it descends from."""
    seen = {one.process.pid: one for one in _look()}
    own = {os.getpid(), *(process.pid for process in psutil.Process().parents())}
    found: dict[int, Member] = {}
    for one in seen.values():
        if (member := _member(one, directory)) is not None:
            found[one.process.pid] = member
    inits = [member for member in found.values() if member.daemon == INIT]
    nodes = {seen[init.process.pid].namespace: init.node for init in inits}
    for pid, one in seen.items():
        if pid not in found and one.namespace in nodes:
            found[pid] = Member(one.process, None, nodes[one.namespace])
    children: dict[int, list[int]] = {}
    for one in seen.values():
        children.setdefault(one.parent, []).append(one.process.pid)
    # What a task runs with another environment is of its node all the same.
    stack = list(found)
    while stack:
        parent = found[stack.pop()]
        for pid in children.get(parent.process.pid, ()):
            if pid not in found:
                found[pid] = Member(seen[pid].process, None, parent.node)
                stack.append(pid)
    return [member for pid, member in found.items() if pid not in own]


def daemon(members: Sequence[Member], name: str, node: str | None = None) -> Member | None:
    """The oldest such daemon (slurmctld and slurmd have children of the same program)."""
    found = [member for member in members if (member.daemon, member.node) == (name, node)]
    return min(found, key=lambda member: member.process.create_time(), default=None)


def _look() -> list[_Seen]:
    for _ in range(_LOOKS_AT_MOST):
        found, complete = _look_once()
        if complete:
            break
    return found


def _look_once() -> tuple[list[_Seen], bool]:
    """What lives, and whether all of it was seen.

    A process that ends while the list is gone through may have left a child that is not in it: so
    does every daemon that goes into the background.
    """
    uid = os.getuid()
    found = []
    complete = True
    for process in psutil.process_iter():
        try:
            with process.oneshot():
                own = process.uids().real == uid
                # A zombie is no member.
                if not (own or uid == 0) or process.status() == psutil.STATUS_ZOMBIE:
                    continue
                found.append(
                    _Seen(
                        process=process,
                        parent=process.ppid(),
                        namespace=Path(f"/proc/{process.pid}/ns/pid").stat().st_ino,
                        account=_account(process) if own else None,
                    )
                )
        except (psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
            complete = False
        except (psutil.Error, OSError):
            continue  # not to be looked at
    return found, complete


def _account(process: psutil.Process) -> _Account:
    return _Account(
        program=Path(process.exe()).name,
        cwd=process.cwd(),
        argv=process.cmdline(),
        environment=process.environ(),
    )


def _is_first(pid: int) -> bool:
    """Whether the process is the first of a PID namespace directly below this one."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    pids = next((line for line in status.splitlines() if line.startswith("NSpid:")), "")
    return pids.split()[1:] == [str(pid), "1"]


def _member(one: _Seen, directory: Path) -> Member | None:
    account = one.account
    if account is None:
        return None
    kind = _daemon(account.program)
    node = _node_of_path(account.cwd, directory)
    if kind in ("slurmd", "slurmstepd") and node is not None:
        return Member(one.process, kind, node)
    if kind == "slurmctld" and account.cwd == str(directory / "controller"):
        return Member(one.process, kind, None)
    if kind == "munged" and f"--socket={directory}/munge/socket" in account.argv:
        return Member(one.process, kind, None)
    if account.environment.get(DIRECTORY_VARIABLE) == str(directory):
        if account.program == _INIT_PROGRAM and _is_first(one.process.pid):
            kind = INIT
        return Member(one.process, kind, account.environment.get(NODE_VARIABLE))
    return None


def _daemon(program: str) -> str | None:
    # " (deleted)": the package was upgraded meanwhile.
    name = program.removesuffix(" (deleted)").removesuffix("-wlm")
    return name if name in _DAEMONS else None


def _node_of_path(cwd: str, directory: Path) -> str | None:
    parent, _, name = cwd.removesuffix(" (deleted)").rpartition("/")
    return name if parent == str(directory / "nodes") else None


def kill(members: Sequence[Member]) -> None:
    """SIGKILL to each; fine if it has ended."""
    for member in members:
        with contextlib.suppress(psutil.Error):
            member.process.kill()


def terminate(members: Sequence[Member]) -> None:
    """SIGTERM to each, also if it was stopped; fine if it has ended."""
    for member in members:
        with contextlib.suppress(psutil.Error):
            member.process.terminate()
            member.process.resume()


def kill_all(look: Callable[[], Sequence[Member]], timeout_s: float) -> list[Member]:
    """SIGKILL to what ``look`` finds, again and again, until it finds nothing, several times.

    A daemon that is just forking itself into the background can be missed by one look: its parent
    is gone by the time it is looked at, and the child was not there when the list was made.

    Returns:
        What is still there after ``timeout_s``.
    """
    deadline = time.monotonic() + timeout_s
    quiet = 0
    while quiet < _LOOKS_TO_BE_SURE:
        members = look()
        quiet = 0 if members else quiet + 1
        if members and time.monotonic() > deadline:
            return list(members)
        kill(members)
        if quiet < _LOOKS_TO_BE_SURE:
            time.sleep(_POLL_S)
    return []


def wait_gone(members: Sequence[Member], timeout_s: float) -> list[Member]:
    """Waits until all of these have ended.

    Returns:
        Those that have not.
    """
    deadline = time.monotonic() + timeout_s
    while left := [member for member in members if _lives(member.process)]:
        if time.monotonic() > deadline:
            return left
        time.sleep(_POLL_S)
    return []


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
