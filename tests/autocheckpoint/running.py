# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""A program that runs, what it says, and how it ends."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

TRAINING = Path(__file__).with_name("program.py")
PYTHON = sys.executable
# For whatever a loaded machine does in a few seconds when it is quiet.
PATIENCE_S = 240.0


class Program:
    """One program in a session of its own, so that nobody else's signals reach it.

    Args:
        directory: For what it says; made here.
        argv: What is run.
        environ: What it has beside this process's environment.
    """

    def __init__(
        self, directory: Path, argv: Sequence[str | Path], environ: Mapping[str, str]
    ) -> None:
        directory.mkdir()
        self._output, self._errors = directory / "output", directory / "errors"
        with self._output.open("w") as output, self._errors.open("w") as errors:
            self.process = subprocess.Popen(
                argv,
                env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", **environ},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                start_new_session=True,
            )

    @property
    def said(self) -> list[str]:
        """The whole lines of its standard output."""
        text = self._output.read_text()
        return text[: text.rfind("\n") + 1].splitlines()

    @property
    def log(self) -> str:
        """Its standard error."""
        return self._errors.read_text()

    @property
    def steps(self) -> list[int]:
        """The steps that it has taken, in order."""
        return [int(line.split()[1]) for line in self.said if line.startswith("step ")]

    def wait_to_say(self, pattern: str, times: int = 1) -> str:
        """Waits until a line matches for the n-th time; returns that line."""
        deadline = time.monotonic() + PATIENCE_S
        while len(found := [line for line in self.said if re.fullmatch(pattern, line)]) < times:
            assert self.process.poll() is None, f"ended before {pattern!r}: {self}"
            assert time.monotonic() < deadline, f"not within {PATIENCE_S} s: {pattern!r}: {self}"
            time.sleep(0.02)
        return found[times - 1]

    def wait_to_log(self, words: str) -> None:
        """Waits until the words are on standard error."""
        deadline = time.monotonic() + PATIENCE_S
        while words not in self.log:
            assert self.process.poll() is None, f"ended before {words!r}: {self}"
            assert time.monotonic() < deadline, f"not within {PATIENCE_S} s: {words!r}: {self}"
            time.sleep(0.02)

    def terminate(self) -> None:
        """SIGTERM to the process that was started, and to no other."""
        self.process.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        """Its exit code, once it has ended by itself."""
        try:
            return self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it does not end: {self}") from None

    def kill(self) -> None:
        """Ends it and whatever it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def __repr__(self) -> str:
        return "\n".join([*self.said[-20:], "--- errors", self.log[-3000:]])


def committed(directory: Path) -> list[int]:
    """The steps whose checkpoints are whole, read without Orbax: it renames them last."""
    return sorted(int(path.name) for path in directory.iterdir() if path.name.isdigit())
