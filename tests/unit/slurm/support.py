# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Slurm's commands, played by functions of a test."""

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import IO

from pathways_slurm.scheduler.slurm_command import Completed

COMMANDS = ("sbatch", "squeue", "scontrol", "scancel")

SILENCE = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"


def programs(directory: Path) -> str:
    """A PATH where Slurm's commands can be found; nothing runs them."""
    directory.mkdir(parents=True)
    for name in COMMANDS:
        (directory / name).write_text("#!/bin/false\n")
        (directory / name).chmod(0o755)
    return str(directory)


class FakeSlurm:
    """A runner that answers from tables, and remembers what it was asked.

    Attributes:
        rows: Lines of squeue's answer; None: slurmctld does not answer.
        answers: First words of a command → its exit code and output.
        sbatch: Plays sbatch: returns its exit code (None: time ran out) and what it prints.
        calls: Every command, without its directory.
        environments: Of each sbatch.
    """

    def __init__(self) -> None:
        self.rows: list[str] | None = []
        self.answers: dict[str, tuple[int, str]] = {}
        self.sbatch: Callable[[], tuple[int | None, str]] = lambda: (0, "44\n")
        self.calls: list[tuple[str, ...]] = []
        self.environments: list[Mapping[str, str]] = []

    def __call__(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        timeout_s: float,
        *,
        output: IO[bytes] | None = None,
        keep: Collection[int] = (),
    ) -> Completed:
        del timeout_s
        words = (Path(argv[0]).name, *argv[1:])
        self.calls.append(words)
        if words[0] == "sbatch":
            assert output is not None
            assert keep
            self.environments.append(environment)
            code, text = self.sbatch()
            output.write(text.encode())
            output.flush()
            return Completed(tuple(argv), code)
        if words[0] == "squeue":
            if self.rows is None:
                return Completed(tuple(argv), 1, err=SILENCE)
            return Completed(tuple(argv), 0, "".join(f"{row}\n" for row in self.rows))
        for start, (answer, text) in self.answers.items():
            if " ".join(words).startswith(start):
                return Completed(tuple(argv), answer, text, text if answer else "")
        raise AssertionError(f"not expected: {words}")

    def count(self, program: str) -> int:
        return sum(call[0] == program for call in self.calls)


def row(
    index: int | str = 0,
    state: str = "RUNNING",
    *,
    array: int = 44,
    reason: str = "None",
    restarts: int = 0,
    exit_status: str = "0",
    submit: str = "2026-11-29T16:25:14",
    start: str = "2026-11-29T16:25:15",
    nodes: str = "n0",
    comment: str = "",
    name: str = "pathways-run-0",
) -> str:
    """A line of squeue's answer; index "N/A" is a whole array without tasks of its own."""
    id_ = f"{array}_{index}" if index != "N/A" else str(array)
    fields = [id_, array, index, state, reason, restarts, exit_status, submit, start]
    fields += ["N/A", "N/A", nodes, comment, name]
    return "|".join(map(str, fields)) + "|"


def node(name: str, address: str) -> str:
    """A line of ``scontrol --oneliner show node``."""
    return f"NodeName={name} Arch=x86_64 NodeAddr={address} NodeHostName={name} Partitions=tpu"
