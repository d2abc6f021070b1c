# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Signals to workers, which are known by what they told the resource manager.

Anybody who can reach the resource manager can tell it anything, and a process id is used again: a
signal is sent only to a process that is found to be that worker, and to no successor of it.
"""

import contextlib
import os
import select
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from pathways_emulator import flags, processes
from pathways_emulator import membership_pb2 as pb
from pathways_emulator.address import Address
from pathways_emulator.flags import WorkerFlags

_STOP_INTERVAL_S = 0.01
_MODULE = "pathways_emulator.server"


class WorkerProcessError(Exception):
    """The worker's process can't be reached; the message says why and what to do."""


class WorkerProcess:
    """The process of one worker on this machine. Make one with `find`."""

    def __init__(self, pid: int, descriptor: int) -> None:
        self._pid = pid
        self._descriptor = descriptor

    def send(self, number: signal.Signals) -> None:
        """Sends a signal to that very process; does nothing if it has ended."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._descriptor, number)

    def wait_until_still(self, timeout_s: float) -> bool:
        """Whether it has ended or stopped within that time, as a signal has told it."""
        deadline_s = time.monotonic() + timeout_s
        while processes.can_run(self._pid):
            if time.monotonic() > deadline_s:
                return False
            # Returns at the end of the process; a stop is not to be waited for.
            select.select([self._descriptor], [], [], _STOP_INTERVAL_S)
        return True


@contextlib.contextmanager
def find(host: pb.HostStatus, resource_manager: Address) -> Iterator[WorkerProcess]:
    """The process of the worker that the resource manager knows so.

    Args:
        host: Of the worker, as the resource manager has it.
        resource_manager: Which that is.

    Raises:
        WorkerProcessError: It is on another machine, has ended, belongs to another user, or the
            process with that id is not that worker.
    """
    pid = host.pid
    who = (
        f"slice {host.slice_index} host {host.host_index}, process {pid} of "
        f"{host.node or 'an unknown machine'}"
    )
    here = processes.pid_space()
    if not here or host.pid_space != here:
        raise WorkerProcessError(
            f"{who}, can't be signalled from here: this is another machine or container. "
            "Run the command there"
        )
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        raise WorkerProcessError(f"{who}, has ended") from None
    try:
        # After opening: from here on the descriptor can't come to mean another process.
        _require_worker(who, host, resource_manager)
        yield WorkerProcess(pid, descriptor)
    finally:
        os.close(descriptor)


def _require_worker(who: str, host: pb.HostStatus, resource_manager: Address) -> None:
    proc = Path("/proc") / str(host.pid)
    try:
        command_line = _strings(proc / "cmdline")
        environment = _strings(proc / "environ")
    except PermissionError:
        raise WorkerProcessError(
            f"{who}, belongs to another user. Run the command as that user"
        ) from None
    except OSError:
        raise WorkerProcessError(f"{who}, has ended") from None
    expected = {
        f"PATHWAYS_SLICE_INDEX={host.slice_index}",
        f"PATHWAYS_HOST_INDEX={host.host_index}",
        f"PATHWAYS_INCARNATION={host.incarnation}",
    }
    if not expected <= set(environment) or not is_worker(command_line, resource_manager):
        raise WorkerProcessError(
            f"{who}, is not that worker but another process: {' '.join(command_line)[:200]!r}. "
            "Nothing was signalled"
        )


def is_worker(command_line: Sequence[str], resource_manager: Address) -> bool:
    """Whether a command line is that of a worker that joins this resource manager."""
    for place, word in enumerate(command_line):
        if Path(word).name == flags.SERVER or (place and command_line[place - 1 : place + 1]) == [
            "-m",
            _MODULE,
        ]:
            faults: list[str] = []
            try:
                given = flags.read_server(command_line[place + 1 :], faults)
            except flags.HelpRequest:
                return False
            return (
                not faults
                and isinstance(given, WorkerFlags)
                and given.resource_manager_address == resource_manager
            )
    return False


def _strings(path: Path) -> list[str]:
    return [text.decode(errors="replace") for text in path.read_bytes().split(b"\0")][:-1]
