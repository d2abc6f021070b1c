# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What anybody on the machine can see of a service: /proc, its files, its ports.

Standard library only. Nothing here asks the service or knows its code; a test enforces it.
"""

import contextlib
import json
import os
import re
import socket
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

type Endpoint = tuple[str, int]

# HTTP/2: what a client says first (RFC 9113, 3.4), an empty SETTINGS frame, and its type.
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + struct.pack(">HBBBI", 0, 0, 4, 0, 0)
_SETTINGS = 4
_ANSWER_S = 1.0

_ESTABLISHED = "01"
_TARGET = re.compile(r"^(?:export )?JAX_BACKEND_TARGET='?grpc://([^/:'\s]+):([0-9]{1,5})'?$", re.M)


@dataclass(frozen=True)
class Process:
    """One process; pid and start together name it for good."""

    pid: int
    start: int
    parent: int
    state: str
    argv: tuple[str, ...]
    environ: Mapping[str, str] = field(repr=False)

    @property
    def key(self) -> tuple[int, int]:
        return self.pid, self.start

    def flag(self, name: str) -> str | None:
        """The value of ``--name=VALUE`` on the command line."""
        prefix = f"--{name}="
        return next((w.removeprefix(prefix) for w in self.argv if w.startswith(prefix)), None)


@dataclass(frozen=True)
class Worker:
    """A worker process by its environment, and whether it is connected to its RM.

    ``stopped``: by SIGSTOP; it can take no part until it is continued.
    """

    process: Process
    slice: int
    host: int
    incarnation: int
    stopped: bool
    connected: bool

    def __str__(self) -> str:
        return (
            f"pid {self.process.pid} (slice {self.slice} host {self.host} incarnation "
            f"{self.incarnation}{', stopped' if self.stopped else ''}"
            f"{', connected to the RM' if self.connected else ''})"
        )


@dataclass(frozen=True)
class Task:
    """A row of squeue, or a runner of the local scheduler: one array task.

    ``restarts`` is None where that can't be seen.
    """

    array: str
    index: int
    name: str
    state: str
    restarts: int | None

    @property
    def live(self) -> bool:
        return self.state not in ENDED


# squeue's words for tasks that will not run again by themselves.
ENDED = frozenset(
    {
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "REVOKED",
        "TIMEOUT",
    }
)


@dataclass(frozen=True)
class Line:
    """A line of events.jsonl; ``fields`` is None if it is no JSON object."""

    text: str
    fields: Mapping[str, Any] | None


@dataclass(frozen=True)
class Sighting:
    """All that was seen at one moment.

    Attributes:
        time: Unix time in seconds.
        processes: Of the service.
        workers: Those among them that are workers.
        tasks: Array tasks; None if the scheduler gave no answer.
        published: Proxy that cluster.env names; ("", 0) if it names none; None without a file.
        answers: Whether that proxy answers.
        rm: Whether the resource manager answers; None if its address is not known.
        status: The last status.json that could be read.
        lines: Of events.jsonl, those that have come since the last sighting.
    """

    time: float
    processes: tuple[Process, ...] = ()
    workers: tuple[Worker, ...] = ()
    tasks: tuple[Task, ...] | None = ()
    published: Endpoint | None = None
    answers: bool = False
    rm: bool | None = None
    status: Mapping[str, Any] = field(default_factory=dict)
    lines: tuple[Line, ...] = ()

    def named(self, role: str) -> tuple[Process, ...]:
        """The processes of a role: ``root``, ``supervisor``, ``rm``, ``proxy``, ``guard``."""
        return tuple(p for p in self.processes if role_of(p) == role)


def role_of(process: Process) -> str:
    """What a process of a service is, by its command line; "" for anything else."""
    argv = process.argv
    if "pathways_slurm.guard" in argv:
        return "guard"
    if process.flag("node_type") == "resource_manager":
        return "rm"
    if process.flag("num_elastic_instances") is not None:
        return "proxy"
    if argv[-1:] == ("supervise",):
        return "supervisor"
    # A task's script has arguments, the service's own has none.
    if argv[-1:] == ("up",) or (argv and argv[-1].endswith("/slurm_script")):
        return "root"
    return ""


def processes(marker: str, exempt: str) -> list[Process]:
    """The processes that have ``marker`` in their command line or environment.

    Not those that have the variable ``exempt``, nor this one.
    """
    found = []
    for pid in (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()):
        if pid == os.getpid():
            continue
        # Ended meanwhile, or another user's.
        with contextlib.suppress(OSError, ValueError, IndexError):
            argv = Path(f"/proc/{pid}/cmdline").read_bytes()
            if not argv:
                # The kernel's own, or ended.
                continue
            environ = Path(f"/proc/{pid}/environ").read_bytes()
            if marker.encode() not in argv and marker.encode() not in environ:
                continue
            process = _process(pid, argv, environ)
            if process.state not in "ZX" and exempt not in process.environ:
                found.append(process)
    return found


def lives(process: Process) -> bool:
    """Whether the process is still there, and its pid not another's by now."""
    try:
        stat = _stat(process.pid)
    except OSError:
        return False
    return int(stat[19]) == process.start and stat[0] not in "ZX"


def _stat(pid: int) -> list[str]:
    # From the third field on. The name, in parentheses, may hold anything.
    text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    return text.rpartition(") ")[2].split()


def _process(pid: int, argv: bytes, environ: bytes) -> Process:
    stat = _stat(pid)
    items = (item.partition("=") for item in environ.decode(errors="replace").split("\0"))
    return Process(
        pid=pid,
        start=int(stat[19]),
        parent=int(stat[1]),
        state=stat[0],
        argv=tuple(argv.decode(errors="replace").split("\0")[:-1]),
        environ={name: value for name, _, value in items if name},
    )


def workers(among: list[Process]) -> list[Worker]:
    """The workers among these processes."""
    connections = Connections()
    return list(_workers(among, connections))


def _workers(among: list[Process], connections: "Connections") -> Iterator[Worker]:
    for process in among:
        rm = process.flag("resource_manager_address")
        own = process.environ
        # Only a worker's own process has an address to bind: neither srun nor a shell before it.
        if rm is None or "PATHWAYS_BIND_ADDRESS" not in own or "PATHWAYS_INCARNATION" not in own:
            continue
        host, _, port = rm.rpartition(":")
        yield Worker(
            process=process,
            slice=int(own.get("PATHWAYS_SLICE_INDEX", -1)),
            host=int(own.get("PATHWAYS_HOST_INDEX", -1)),
            incarnation=int(own["PATHWAYS_INCARNATION"]),
            stopped=process.state in "Tt",
            connected=connections.has(process.pid, (host, int(port))),
        )


class Connections:
    """The ESTABLISHED connections of the machine's processes at one moment.

    The kernel takes milliseconds for such a table, so each network namespace's is read once.
    """

    def __init__(self) -> None:
        self._tables: dict[tuple[str, str], dict[str, list[str]]] = {}

    def has(self, pid: int, to: Endpoint) -> bool:
        """Whether a process holds one to an IPv4 endpoint."""
        try:
            packed = socket.inet_aton(to[0])
        except OSError:
            return False
        address = f"{struct.unpack('<I', packed)[0]:08X}:{to[1]:04X}"
        with contextlib.suppress(OSError):
            return self._holds(pid, "tcp", address) or self._holds(
                pid, "tcp6", f"0000000000000000FFFF0000{address}"
            )
        return False

    def _holds(self, pid: int, name: str, remote: str) -> bool:
        sockets = self._table(pid, name).get(remote)
        if not sockets:
            return False
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                if str(descriptor.readlink()) in sockets:
                    return True
        return False

    def _table(self, pid: int, name: str) -> dict[str, list[str]]:
        """Remote address → the sockets connected to it, in the process's network namespace."""
        key = str(Path(f"/proc/{pid}/ns/net").readlink()), name
        if key not in self._tables:
            table: dict[str, list[str]] = {}
            for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == _ESTABLISHED:
                    table.setdefault(words[2], []).append(f"socket:[{words[9]}]")
            self._tables[key] = table
        return self._tables[key]


def runners(among: list[Process]) -> list[Task]:
    """The tasks of the local scheduler that live: each has a runner process.

    Its command line ends with the array's directory, the index and a descriptor.
    """
    return [
        Task(process.argv[-3], int(process.argv[-2]), process.argv[-3], "RUNNING", None)
        for process in among
        if any(word.endswith(".local_task") for word in process.argv[:-3])
        and process.argv[-2].isdigit()
    ]


def proxy_of(cluster_env: Path) -> Endpoint | None:
    """The proxy that the file names; None without a file, ("", 0) if it names none."""
    try:
        text = cluster_env.read_text(errors="replace")
    except OSError:
        return None
    found = _TARGET.search(text)
    return (found[1], int(found[2])) if found else ("", 0)


def speaks_http2(endpoint: Endpoint) -> bool:
    """Whether a gRPC server answers there. One whose process hangs takes connections, no more."""
    try:
        with socket.create_connection(endpoint, _ANSWER_S) as connection:
            connection.settimeout(_ANSWER_S)
            connection.sendall(_PREFACE)
            head = b""
            while len(head) < 9 and (more := connection.recv(9 - len(head))):
                head += more
            return len(head) == 9 and head[3] == _SETTINGS
    except OSError:
        return False


class LineReader:
    """The lines that others append to a file; one that is not whole yet comes later."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def lines(self) -> list[Line]:
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except OSError:
            return []
        whole, newline, _ = data.rpartition(b"\n")
        self._offset += len(whole) + len(newline)
        return [_line(text) for text in whole.split(b"\n")] if newline else []


def _line(raw: bytes) -> Line:
    text = raw.decode(errors="replace")
    try:
        fields = json.loads(raw)
    except ValueError:
        fields = None
    return Line(text, fields if isinstance(fields, dict) else None)


def read_status(path: Path) -> dict[str, Any]:
    """status.json; empty if there is none."""
    with contextlib.suppress(OSError, ValueError):
        status = json.loads(path.read_text())
        if isinstance(status, dict):
            return status
    return {}
