# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""A training program that a user keeps running: started again whenever it ends."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.chaos.sightings import LineReader
from tests.e2e.service import CHECKOUT, COMMAND

# As small as it may be: a step must not take the CPUs from what is tested.
_PROGRAM = CHECKOUT / "tests" / "chaos" / "counting.py"
_END_S = 20.0


class Workload:
    """Trains through ``pathways-slurm run``, with checkpoints, until it is closed.

    Its directory must exist. ``become`` goes before the command.

    Attributes:
        starts: How often the program was started.
        step: The furthest step.
        wrong: Results that were not what they had to be, in words.
    """

    def __init__(
        self, directory: Path, environ: Mapping[str, str], become: Sequence[str] = ()
    ) -> None:
        self._become = become
        self.starts = 0
        self.step = 0
        self.wrong: list[str] = []
        self.log = directory / "training.log"
        self._directory = directory
        self._environ = dict(environ)
        self._metrics = LineReader(directory / "metrics.jsonl")
        self._process: subprocess.Popen[bytes] | None = None

    def tend(self) -> None:
        """Reads how far it is, and starts it if it does not run."""
        for line in self._metrics.lines():
            fields = line.fields or {}
            if fields.get("event") == "step":
                self.step = max(self.step, int(fields["step"]))
            elif fields.get("event") == "wrong":
                self.wrong.append(line.text)
        if self._process is None or self._process.poll() is not None:
            self._start()

    def _start(self) -> None:
        self.starts += 1
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._become, COMMAND, "run", "--", sys.executable, _PROGRAM, self._directory],
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def kill(self) -> None:
        """kill -9 of the program, as a node's end does; it is started again."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def close(self) -> None:
        """Ends it as Ctrl-C does."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
        deadline = time.monotonic() + _END_S
        while self._process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        self.kill()
