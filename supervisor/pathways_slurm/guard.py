# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The parent of one component of a service: ends it when the service's root process ends.

::

    python -m pathways_slurm.guard --root-pid PID --root-start-time TICKS --status FILE
        [--log FILE] [--grace SECONDS] [--withdraw FILE RUN_ID] -- PROGRAM [ARGUMENT...]

The component runs in a session of its own. It ends, with all it has forked, when it ends itself,
when the root process ends, on SIGTERM or SIGINT to the guard, or when the guard is killed. The
status file (JSON, see ``pathways_slurm.component``) is written once the component has started and
again when it has ended. The exit status is the component's, or 128 + its signal.

The proxy's guard also withdraws the discovery file when the proxy has ended: it is the one that is
still there when root and supervisor were killed together.
"""

import argparse
import json
import os
import select
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from pathways_slurm import processes
from pathways_slurm.files import write_atomic
from pathways_slurm.keeper import Command, Exit, Keeper, SignalInbox
from pathways_slurm.processes import ProcessIdentity

_COULD_NOT_START = 127


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the guard until its component has ended."""
    options = _parser().parse_args(arguments)
    os.umask(0o077)
    processes.become_subreaper()
    inbox = SignalInbox(signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
    root = ProcessIdentity(options.root_pid, options.root_start_time, processes.boot_id())
    status = _StatusFile(options.status)
    root_ended = processes.open_pidfd(root)
    if root_ended is None:
        # Opened before the component starts, so that its end can't be missed.
        reason = f"root process {root.pid} (start time {root.start_time}) has ended"
        status.write(error=reason)
        print(f"pathways_slurm.guard: {reason}; nothing was started", file=sys.stderr)
        return _COULD_NOT_START
    environment = processes.initial_environment()
    # Of the shell that started us, if that is bash.
    environment.pop("_", None)
    command = Command(tuple(options.argv), environment, options.log)
    keeper = Keeper([command], kill_wait_s=options.grace)
    watched: list[SignalInbox | Keeper | int] = [inbox, keeper, root_ended]
    reason = ""
    while keeper.phase != "ended":
        readable, _, _ = select.select(watched, [], [])
        if root_ended in readable:
            # Readable for good from now on.
            watched.remove(root_ended)
            reason = reason or "the root process ended"
            keeper.stop()
        if received := inbox.take() - {signal.SIGCHLD}:
            reason = reason or f"the guard got {signal.Signals(min(received)).name}"
            keeper.stop()
        if keeper in readable:
            before = keeper.phase
            keeper.advance()
            if before == "starting" and keeper.pids:
                status.started(keeper.pids[0])
    if options.withdraw is not None:
        _withdraw(*options.withdraw)
    return _conclude(keeper, status, reason)


def _withdraw(path: str, run_id: str) -> None:
    # Imported only now: a guard must start fast, and most of its life needs none of this.
    from pathways_slurm import cluster_env

    try:
        cluster_env.remove(Path(path), run_id)
    except OSError as error:
        print(f"pathways_slurm.guard: could not withdraw {path}: {error}", file=sys.stderr)


def _conclude(keeper: Keeper, status: "_StatusFile", reason: str) -> int:
    ended: Exit | None = keeper.exits[0] if keeper.exits else None
    if ended is None:
        print(f"pathways_slurm.guard: {keeper.error}", file=sys.stderr)
        status.write(error=keeper.error, ended_at=time.time())
        return _COULD_NOT_START
    status.write(
        exit_code=ended.code,
        signal=ended.signal,
        ended_at=time.time(),
        reason=reason or keeper.error or f"the component {ended}",
    )
    if ended.signal is not None:
        return 128 + ended.signal
    return 0 if ended.code is None else ended.code


class _StatusFile:
    """The file by which the supervisor knows the component."""

    def __init__(self, path: Path) -> None:
        self._path = path
        guard = processes.identify(os.getpid())
        self._fields: dict[str, object] = {
            "boot_id": processes.boot_id(),
            "guard_pid": os.getpid(),
            "guard_start_time": None if guard is None else guard.start_time,
        }

    def started(self, pid: int) -> None:
        """The component runs, or did: one that ended at once has no start time any more."""
        identity = processes.identify(pid)
        self.write(
            pid=pid,
            start_time=None if identity is None else identity.start_time,
            started_at=time.time(),
        )

    def write(self, **fields: object) -> None:
        """Adds ``fields`` and replaces the file."""
        self._fields.update(fields)
        write_atomic(self._path, json.dumps(self._fields, indent=1) + "\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pathways_slurm.guard",
        description="Runs one component of a service and ends it when the root process ends.",
        allow_abbrev=False,
    )
    parser.add_argument("--root-pid", type=int, required=True, metavar="PID")
    parser.add_argument(
        "--root-start-time",
        type=int,
        required=True,
        metavar="TICKS",
        help="field 22 of /proc/PID/stat: tells the process from a later one with its pid",
    )
    parser.add_argument("--status", type=_absolute, required=True, metavar="FILE")
    parser.add_argument("--log", type=_absolute, metavar="FILE", help="appended; default: inherit")
    parser.add_argument(
        "--grace",
        type=float,
        default=10.0,
        metavar="SECONDS",
        help="from SIGTERM to SIGKILL (default: %(default)s)",
    )
    parser.add_argument(
        "--withdraw",
        nargs=2,
        metavar=("FILE", "RUN_ID"),
        help="cluster.env to remove, if that run published it, once the component has ended",
    )
    parser.add_argument("argv", nargs="+", metavar="PROGRAM", help="and its arguments, after --")
    return parser


def _absolute(text: str) -> Path:
    return Path(text).absolute()


if __name__ == "__main__":
    sys.exit(main())
