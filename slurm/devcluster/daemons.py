# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Starts the daemons. Each one is ready for its first message when its starter returns."""

import contextlib
import os
import secrets
import subprocess
from collections.abc import Sequence
from pathlib import Path

from slurm.devcluster.machines import Machines
from slurm.devcluster.members import marked
from slurm.devcluster.programs import Programs

# Far above what one takes on a busy machine.
_START_S = 30.0
_KEY_BYTES = 128
_LOG_TAIL = 15


class DaemonError(Exception):
    """A daemon did not start; the message has what it said."""


class Daemons:
    """The daemons of the cluster in ``directory``. Whether one runs already is not looked at."""

    def __init__(self, directory: Path, programs: Programs, machines: Machines) -> None:
        self._directory = directory
        self._programs = programs
        self._machines = machines
        self._conf = directory / "slurm.conf"

    def start_munged(self) -> None:
        """Starts munged with a key of the cluster's own."""
        munge = self._directory / "munge"
        key = munge / "key"
        with contextlib.suppress(FileExistsError):
            descriptor = os.open(key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400)
            with os.fdopen(descriptor, "wb") as file:
                file.write(secrets.token_bytes(_KEY_BYTES))
        # --force: its directory may be private, of which munged would only warn its other users.
        argv = [str(self._programs.munged), "--force", f"--key-file={key}"]
        argv += [f"--socket={munge / 'socket'}", f"--pid-file={munge / 'pid'}"]
        argv += [f"--log-file={munge / 'munged.log'}", f"--seed-file={munge / 'seed'}"]
        self._finish("munged", self._start(argv, munge, None), munge / "munged.log")

    def start_slurmctld(self) -> None:
        """Starts slurmctld with whatever state it has."""
        home = self._directory / "controller"
        argv = [*self._machines.controller(), self._programs.slurmctld, "-f", self._conf]
        self._finish("slurmctld", self._start(argv, home, None), home / "slurmctld.log")

    def start_slurmds(self, nodes: Sequence[str], *, rebooted: bool = False) -> None:
        """Starts the slurmd of each node; with ``rebooted``, as if the machine had booted.

        Raises:
            MachineError: A node is off.
        """
        started = []
        for node, before in self._machines.enter(nodes).items():
            home = self._directory / "nodes" / node
            # Another mount namespace begins in its root directory.
            argv = [*before, "env", f"--chdir={home}"] if before else []
            argv += [str(self._programs.slurmd), "-f", str(self._conf), "-N", node]
            argv += ["-b"] if rebooted else []
            started.append((node, home, self._start(argv, home, node)))
        for node, home, process in started:
            self._finish(f"slurmd of {node}", process, home / "slurmd.log")

    def _start(
        self, argv: Sequence[str | Path], cwd: Path, node: str | None
    ) -> subprocess.Popen[bytes]:
        # Not into a pipe: what a daemon leaves open would keep it open.
        output = os.open(cwd / "start.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            return subprocess.Popen(
                argv,
                cwd=cwd,
                env=self._environment(node),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        finally:
            os.close(output)

    def _environment(self, node: str | None) -> dict[str, str]:
        # A cluster may be started from within a job of another.
        dropped = ("SLURM", "SBATCH_", "SRUN_", "SALLOC_", "DEVCLUSTER_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
        return marked({**kept, "SLURM_CONF": str(self._conf)}, self._directory, node)

    def _finish(self, what: str, process: subprocess.Popen[bytes], log: Path) -> None:
        """Waits until the daemon has gone to the background, which is when it is ready."""
        try:
            code = process.wait(_START_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise DaemonError(
                _with_tail(f"{what} was not ready after {_START_S:g} s", log)
            ) from None
        if code != 0:
            raise DaemonError(_with_tail(f"{what} did not start (exit code {code})", log))


def _with_tail(message: str, log: Path) -> str:
    lines = []
    for path in (log.with_name("start.log"), log):
        with contextlib.suppress(OSError):
            lines += path.read_text(errors="replace").splitlines()[-_LOG_TAIL:]
    return "\n".join([f"{message}; it said:", *(f"  {line}" for line in lines)])


def tail(log: Path) -> str:
    """The last lines of a log, for a message."""
    with contextlib.suppress(OSError):
        return "\n".join(log.read_text(errors="replace").splitlines()[-_LOG_TAIL:])
    return ""
