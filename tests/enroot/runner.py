# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Runs an enroot the way a batch job does: its paths explicit, everything else absent."""

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Enroot:
    """One enroot, and directories of its own for all it keeps."""

    program: Path
    home: Path

    @property
    def data(self) -> Path:
        return self.home / "data"

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        # HOME is the user's own: a container finds it in the user database anyway.
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        return {
            **kept,
            "ENROOT_RUNTIME_PATH": str(self.home / "runtime"),
            "ENROOT_DATA_PATH": str(self.data),
            "ENROOT_CACHE_PATH": str(self.home / "cache"),
            "ENROOT_TEMP_PATH": str(self.home),
            "ENROOT_CONFIG_PATH": str(self.home / "config"),
            **(more or {}),
        }

    def run(
        self,
        *arguments: str | Path,
        environment: Mapping[str, str] | None = None,
        given: str = "",
    ) -> subprocess.CompletedProcess[str]:
        """Runs a subcommand to its end. ``given`` is its standard input."""
        return subprocess.run(
            [self.program, *arguments],
            env=self.environment(environment),
            cwd=self.home,
            input=given,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    def output(self, *arguments: str | Path, environment: Mapping[str, str] | None = None) -> str:
        """What a subcommand that must succeed prints."""
        done = self.run(*arguments, environment=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def spawn(self, *arguments: str | Path) -> subprocess.Popen[str]:
        """Starts a subcommand; its output is a pipe."""
        return subprocess.Popen(
            [self.program, *arguments],
            env=self.environment(),
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


def stream(process: subprocess.Popen[str]) -> IO[str]:
    """The output of a process that was spawned."""
    assert process.stdout is not None
    return process.stdout
