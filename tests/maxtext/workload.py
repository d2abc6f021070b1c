# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Workloads of a service, read by what MaxText itself logs of its steps."""

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.e2e.service import CHECKOUT, wait_until
from tests.slurm.service.service import SlurmService

MAXTEXT = CHECKOUT / "scripts" / "run_maxtext.sh"
JAX = CHECKOUT / "scripts" / "run_jax.sh"

# The smallest model that MaxText has, on data of its own making.
MODEL = (
    "model_name=gpt3-52k",
    "dataset_type=synthetic",
    "max_target_length=64",
    "per_device_batch_size=1",
    "log_config=false",
)
# More than any test waits for.
ENDLESS = "steps=1000000"
PERIOD = 20
CHECKPOINTS = (f"checkpoint_period={PERIOD}", "max_num_checkpoints_to_keep=3")

# MaxText compiles for ten seconds on a quiet machine, and for minutes on a busy one.
PATIENCE_S = 600.0

_STEP = re.compile(
    r"completed step: (\d+), .*?live slice count: (\d+), .*?\bloss: ([0-9.]+|nan|inf)"
)


@dataclass(frozen=True)
class Step:
    """A step that MaxText has completed."""

    number: int
    slices: int
    loss: float


def steps(log: str) -> list[Step]:
    """All steps of a log, in its order."""
    return [Step(int(found[1]), int(found[2]), float(found[3])) for found in _STEP.finditer(log)]


class Workload:
    """A workload script and its log, as a job or on this machine."""

    def __init__(self, service: SlurmService, log: Path) -> None:
        self.service = service
        self.log = log

    @property
    def text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    @property
    def steps(self) -> list[Step]:
        return steps(self.text)

    def wait_for_step(self, number: int, slices: int, after: int = 0) -> list[Step]:
        """Waits for a step of at least that number on so many slices; returns all steps.

        Args:
            number: Of the step.
            slices: That it was taken on.
            after: So many steps at the log's beginning do not count.
        """

        def reached() -> list[Step] | None:
            self.expect_alive()
            taken = self.steps
            last = taken[after:]
            return taken if any(s.number >= number and s.slices == slices for s in last) else None

        what = f"step {number} on {slices} slices"
        return wait_until(reached, PATIENCE_S, lambda: f"{what}:\n{self.tail()}", 0.2)

    def wait_for(self, words: str) -> None:
        """Waits until the log has these words."""
        wait_until(lambda: words in self.text, PATIENCE_S, lambda: f"{words}:\n{self.tail()}", 0.2)

    def expect_alive(self) -> None:
        """Fails if it has ended."""

    def tail(self) -> str:
        return f"{self.text[-6000:]}\n{self.service.logs()}"


class Process(Workload):
    """The script without Slurm: a process of this machine."""

    def __init__(self, service: SlurmService, script: Path, *argv: str) -> None:
        super().__init__(service, service.home.parent / f"{script.stem}.log")
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [script, *argv],
                env=service.environ,
                cwd=service.home.parent,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def expect_alive(self) -> None:
        assert self.process.poll() is None, self.tail()

    def ended(self) -> int:
        """Its exit code, once it has ended."""
        return self.process.wait(PATIENCE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Kills what is left of it: the next test needs the CPUs."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Job(Workload):
    """The script as a job of Slurm's."""

    def __init__(
        self,
        service: SlurmService,
        script: Path,
        *argv: str,
        options: tuple[str, ...] = (),
        environ: Mapping[str, str] = {},  # nobody changes it
    ) -> None:
        """Submits it.

        Args:
            service: Whose slices it drives.
            script: Of the checkout.
            argv: Its words.
            options: Of sbatch.
            environ: Variables that it gets besides the service's.
        """
        super().__init__(service, service.home.parent / f"{script.stem}-job.log")
        done = subprocess.run(
            ["sbatch", "--parsable", f"--output={self.log}", *options, script, *argv],
            env={**service.environ, **environ},
            cwd=service.home.parent,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        )
        self.id = done.stdout.strip()
        service.jobs.append(self.id)

    @property
    def row(self) -> dict[str, str]:
        """Of squeue."""
        unknown = {"state": "", "restarts": "0"}
        return next((row for row in self.service.queue() if row["job"] == self.id), unknown)

    def wait_for_state(self, state: str, restarts: int) -> None:
        """Waits until the job is in a state, after so many requeues."""

        def reached() -> bool:
            row = self.row
            return row["state"] == state and int(row["restarts"]) == restarts

        what = f"job {self.id} is {state} after {restarts} requeues"
        wait_until(reached, PATIENCE_S, lambda: f"{what}: {self.row}\n{self.tail()}", 0.2)

    def expect_alive(self) -> None:
        state = self.row["state"]
        assert state in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING"), (state, self.tail())
