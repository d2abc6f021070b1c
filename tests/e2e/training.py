# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The example program on a service's slices, and what it tells of its steps."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from tests.e2e.service import CHECKOUT, ServiceUnderTest, output_of, wait_until

PROGRAM = str(CHECKOUT / "docs" / "examples" / "train_transformer.py")
STEPS = 60
# As small as it may be.
SMALL = ("--global-batch", "12", "--seq-len", "16", "--layers", "1", "--width", "16")
# Slow enough for something to happen between two steps.
PACED = ("--min-step-time", "0.1")
# JAX takes seconds to compile on a quiet machine, and a minute on a busy one.
PATIENCE_S = 300.0


def read(metrics: Path) -> list[dict[str, Any]]:
    """The events that are written in full."""
    if not metrics.exists():
        return []
    lines = metrics.read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def losses(events: list[dict[str, Any]]) -> dict[int, float]:
    """By step; of one that was taken again, the last."""
    return {e["step"]: e["loss"] for e in events if e["event"] == "step"}


class Training:
    """The program on a service's slices, in small steps between checkpoints."""

    def __init__(
        self,
        service: ServiceUnderTest,
        *options: str,
        name: str = "",
        run_options: tuple[str, ...] = (),
    ) -> None:
        """Starts it.

        Args:
            service: Whose slices it trains on.
            options: Of the program.
            name: Of a directory for its files, below the service's home.
            run_options: Of ``pathways-slurm run``.
        """
        self._service = service
        directory = service.home / name
        directory.mkdir(exist_ok=True)
        self.metrics = directory / "metrics"
        self.process = service.start(
            *("run", "--timeout", "60", *run_options, "--", sys.executable, PROGRAM),
            *("--steps", str(STEPS), "--checkpoint-period", "2", "--poll-interval", "0.5"),
            *("--checkpoint-dir", str(directory / "checkpoints")),
            *("--metrics", str(self.metrics), *options),
        )

    @property
    def events(self) -> list[dict[str, Any]]:
        """All that it has told so far."""
        return read(self.metrics)

    @property
    def told(self) -> list[tuple[str, int | None]]:
        """The kind, and the step if there is one, of each event."""
        return [(e["event"], e.get("step")) for e in self.events]

    def wait_for_steps(self, count: int, slices: list[int]) -> None:
        """Waits until the last ``count`` events are steps on ``slices``."""

        def reached() -> bool:
            self._expect_running()
            last = self.events[-count:]
            return len(last) == count and all(e.get("slices") == slices for e in last)

        wait_until(reached, PATIENCE_S, f"{count} steps on slices {slices}", every_s=0.02)

    def wait_to_have_used(self, slices: list[int]) -> None:
        """Waits until a step was taken on ``slices``, whatever came after."""

        def reached() -> bool:
            self._expect_running()
            return any(e["event"] == "step" and e["slices"] == slices for e in self.events)

        wait_until(reached, PATIENCE_S, f"a step on slices {slices}", every_s=0.02)

    def wait_for_step(self, step: int, timeout_s: float = PATIENCE_S) -> None:
        """Waits until it has taken this step."""

        def reached() -> bool:
            self._expect_running()
            return step in losses(self.events)

        wait_until(reached, timeout_s, f"step {step}: {self._service.logs()}", every_s=0.02)

    def _expect_running(self) -> None:
        assert self.process.poll() is None, output_of(self.process) + self._service.logs()

    def signal_worker(self, slice_index: int, number: signal.Signals, host: int = 0) -> None:
        """Signals the worker of one host of a slice."""
        pid = self._service.status()["slices"][slice_index]["hosts"][host]["pid"]
        os.kill(pid, number)

    def kill_worker(self, slice_index: int) -> None:
        """kill -9 of a slice's first host."""
        self.signal_worker(slice_index, signal.SIGKILL)

    def expect_success(self, timeout_s: float = PATIENCE_S) -> str:
        """Waits for its end, and returns what it printed."""
        output = self.process.communicate(timeout=timeout_s)[0]
        assert self.process.returncode == 0, output + self._service.logs()
        return output
