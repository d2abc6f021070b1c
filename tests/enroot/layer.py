# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The container layer as a node has it: its scripts, an enroot on PATH, and little else."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[2] / "enroot"
TIMEOUT_S = 60.0


@dataclass
class Layer:
    """The layer with directories of its own.

    Attributes:
        programs: First on PATH: enroot, and what a test puts in the place of the system's.
        base: PATHWAYS_CONTAINER_DIR.
        environment: Whole, of every script.
    """

    programs: Path
    base: Path
    environment: dict[str, str] = field(default_factory=dict)

    def command(self, script: str, *arguments: str | Path) -> list[str]:
        return [str(SCRIPTS / script), *map(str, arguments)]

    def run(
        self,
        image: str | Path,
        *command: str | Path,
        name: str = "worker-0-0",
        mounts: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command in a container to its end."""
        words = [word for mount in mounts for word in ("--mount", mount)]
        return self.script(
            "run_in_container.sh", image, name, *words, "--", *command, environment=environment
        )

    def script(
        self, script: str, *arguments: str | Path, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(script, *arguments),
            env={**self.environment, **(environment or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    def spawn(self, log: Path, script: str, *arguments: str | Path) -> subprocess.Popen[bytes]:
        """Starts a script in a session of its own, so that all of it can be killed at once."""
        with log.open("ab") as output:
            return subprocess.Popen(
                self.command(script, *arguments),
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def put(self, name: str, script: str) -> None:
        """Puts a program of the test's own in the place of the system's."""
        path = self.programs / name
        path.unlink(missing_ok=True)
        path.write_text(f"#!/bin/bash\n{script}\n")
        path.chmod(0o755)

    def attempts(self) -> list[str]:
        return _names(self.base / "attempts")

    def containers(self) -> list[str]:
        return _names(self.base / "containers")


def kill_all(process: subprocess.Popen[bytes]) -> None:
    """kill -9 to a script and all it has started, as Slurm ends a step."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline or process.poll() is not None:
            raise AssertionError(f"did not happen; it said:\n{log.read_text()}")
        time.sleep(0.01)


def _names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir()) if directory.is_dir() else []
