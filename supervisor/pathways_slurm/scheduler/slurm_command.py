# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Runs Slurm's commands, and tells a Slurm that gives no answer from one that says no."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Protocol

from pathways_slurm.scheduler.base import SchedulerError, SchedulerUnavailable

# What Slurm itself reads. A supervisor that runs in a job inherits that job's values, and they
# would become defaults of whatever it asks for.
_SLURMS_OWN = ("SLURM", "SBATCH_", "SRUN_", "SALLOC_", "SQUEUE_", "SCANCEL_", "SCONTROL_", "SINFO_")
_WHERE_SLURM_IS = "SLURM_CONF"

# The request reached nobody: what it asked for can't happen later.
_UNDELIVERED = (
    "unable to contact slurm controller",
    "connect failure",
    "connection refused",
    "munge encode failed",
    "could not establish a configuration source",
    "unable to resolve",
)
# It may have reached slurmctld, or it was turned down for a reason that passes.
_NO_ANSWER = (
    *_UNDELIVERED,
    "authentication error",
    "backup controller in standby",
    "communication connection failure",
    "communications connection failure",
    "resource temporarily unavailable",
    "socket timed out",
    "temporarily unable",
    "transport endpoint is not connected",
    "unable to contact",
    "unexpected message received",
    "zero bytes were transmitted",
    "end of file",
    "broken pipe",
    "connection reset",
    "insane message length",
    "slurmctld is shutting down",
    "header lengths are longer than data received",
    "credential",
)


@dataclass(frozen=True, slots=True)
class Completed:
    """How a command ended; ``code`` is None if it was killed because its time was up."""

    argv: tuple[str, ...]
    code: int | None
    out: str = ""
    err: str = ""

    @property
    def words(self) -> str:
        """What the command said, for people, in one line."""
        if self.code is None:
            return "no answer in time"
        lines = [line.strip() for line in (self.err or self.out).splitlines() if line.strip()]
        return "; ".join(lines) or f"exit code {self.code} without a word"


class Runner(Protocol):
    """Runs one command and waits for it, for a limited time."""

    def __call__(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        timeout_s: float,
        *,
        output: IO[bytes] | None = None,
        keep: Collection[int] = (),
    ) -> Completed:
        """Runs ``argv``; with ``output``, both streams go there. Inherits descriptors ``keep``.

        Raises:
            OSError: The program can't be started.
        """


def run_command(
    argv: Sequence[str],
    environment: Mapping[str, str],
    timeout_s: float,
    *,
    output: IO[bytes] | None = None,
    keep: Collection[int] = (),
) -> Completed:
    """The real :class:`Runner`: files private, standard input empty, no shell."""
    process = subprocess.Popen(
        argv,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if output is None else output,
        stderr=subprocess.PIPE if output is None else output,
        cwd="/",
        umask=0o077,
        # Ctrl-C at a terminal is for the supervisor, which then ends things in order.
        start_new_session=True,
        pass_fds=keep,
    )
    with process:
        try:
            out, err = process.communicate(timeout=timeout_s)
            code: int | None = process.returncode
        except subprocess.TimeoutExpired:
            # The whole session, or a helper that holds the pipe could keep us waiting.
            # What became root by sudo can't be killed; Slurm's own time-outs end it.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            code = None
    return Completed(
        tuple(argv),
        code,
        (out or b"").decode(errors="replace"),
        (err or b"").decode("utf-8", "replace"),
    )


def is_unavailable(words: str) -> bool:
    """Whether a command's complaint says nothing about what it was asked."""
    return _says(words, _NO_ANSWER)


def is_undelivered(words: str) -> bool:
    """Whether a command's complaint means that its request never reached Slurm."""
    return _says(words, _UNDELIVERED)


def _says(words: str, phrases: Sequence[str]) -> bool:
    plain = re.sub(r"\s+", " ", words).lower()
    return any(phrase in plain for phrase in phrases)


def without_slurm(environment: Mapping[str, str]) -> dict[str, str]:
    """``environment`` without what Slurm reads, but for where its configuration is."""
    return {
        name: value
        for name, value in environment.items()
        if name == _WHERE_SLURM_IS or not name.startswith(_SLURMS_OWN)
    }


class SlurmClient:
    """Slurm's command line, as this machine's user has it.

    Every call returns within ``timeout_s`` seconds or soon after.
    """

    def __init__(
        self, timeout_s: float, environment: Mapping[str, str], runner: Runner = run_command
    ) -> None:
        self.timeout_s = timeout_s
        self._path = environment.get("PATH", os.defpath)
        self._runner = runner
        # Messages are matched and times are read, so both must be the same everywhere.
        self._environment = without_slurm(environment) | {"LC_ALL": "C", "TZ": "UTC0"}

    def program(self, name: str) -> str | None:
        """The absolute path of a program in this user's PATH, None if there is none."""
        found = shutil.which(name, path=self._path)
        return found if found and found.startswith("/") else None

    def look(self, *argv: str) -> str:
        """What a command that only asks prints.

        Raises:
            SchedulerUnavailable: It failed, however it did: not to see is not to know.
        """
        done = self.attempt(*argv)
        if done.code != 0:
            raise SchedulerUnavailable(f"{argv[0]} failed: {done.words}")
        return done.out

    def order(self, *argv: str) -> Completed:
        """Has a command change something; whoever calls judges a refusal.

        Raises:
            SchedulerUnavailable: Slurm gave no answer; the order may or may not have got through.
        """
        done = self.attempt(*argv)
        if done.code != 0 and is_unavailable(done.words):
            raise SchedulerUnavailable(f"{' '.join(argv[:2])} failed: {done.words}")
        return done

    def attempt(self, *argv: str) -> Completed:
        """How a command ended.

        Raises:
            SchedulerUnavailable: It took too long, or can't be started.
        """
        done = self.run(argv, self._environment)
        if done.code is None:
            raise SchedulerUnavailable(f"{argv[0]} gave no answer within {self.timeout_s:g} s")
        return done

    def run(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        *,
        output: IO[bytes] | None = None,
        keep: Collection[int] = (),
    ) -> Completed:
        """Runs a command with an environment of the caller's.

        Raises:
            SchedulerUnavailable: It can't be started.
        """
        program = shutil.which(argv[0], path=self._path)
        if program is None:
            raise SchedulerUnavailable(
                f"there is no {argv[0]} in PATH={self._path}; Slurm's client commands must be "
                "installed on this machine and be in PATH"
            )
        try:
            return self._runner(
                (program, *argv[1:]), environment, self.timeout_s, output=output, keep=keep
            )
        except OSError as fault:
            raise SchedulerUnavailable(f"could not run {program}: {fault}") from fault


def refusal(done: Completed, what: str) -> SchedulerError:
    """The error for an order that Slurm turned down, in Slurm's own words."""
    return SchedulerError(f"{what}: Slurm says {done.words!r}")
