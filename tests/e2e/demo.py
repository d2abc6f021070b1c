# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""scripts/demo.sh under test: started, read, and seen through /proc."""

import contextlib
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import psutil
from tests.e2e.service import CHECKOUT, wait_until

SUMMARY = {
    "slices",
    "min_slices",
    "killed_slice",
    "steps",
    "loss_first",
    "loss_last",
    "resumed_after_s",
    "slice_back_after_s",
    "full_mesh_after_s",
    "steps_lost",
    "ok",
}


class Demo:
    """One run of the demo; everything of it is below ``tmp``, by which its processes are found."""

    def __init__(self, tmp: Path, *options: str) -> None:
        self._slurm = "--slurm" in options
        self._log = tmp / "output"
        self._home = tmp / "tmp"
        self._home.mkdir()
        self.summary_file = tmp / "summary.json"
        with self._log.open("wb") as output:
            self.process = subprocess.Popen(
                [CHECKOUT / "scripts" / "demo.sh", "--json", self.summary_file, *options],
                env={**os.environ, "TMPDIR": str(self._home)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def output(self) -> str:
        return self._log.read_text(errors="replace")

    @property
    def summary(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.summary_file.read_text())
        assert found.keys() == SUMMARY | ({"slurm_restarts"} if self._slurm else set())
        return found

    @property
    def homes(self) -> list[Path]:
        """Directories of services that are left."""
        return list(self._home.glob("pathways-demo-*"))

    def wait_to_say(self, text: str, timeout_s: float = 90.0) -> None:
        def said() -> bool:
            found = text in self.output
            assert found or self.process.poll() is None, self.output
            return found

        wait_until(said, timeout_s, f"the demo says {text!r}")

    def wait(self, timeout_s: float = 110.0) -> int:
        return self.process.wait(timeout_s)

    def processes(self, within: str = "") -> list[psutil.Process]:
        """Living ones of this demo, except those that are ending as zombies."""
        marker = str(self._home)
        found = []
        for process in psutil.process_iter():
            try:
                words = [*process.cmdline(), *process.environ().values()]
                if process.status() == psutil.STATUS_ZOMBIE:
                    continue
            except psutil.Error:
                continue
            if any(marker in w for w in words) and any(within in w for w in words):
                found.append(process)
        return found

    def close(self) -> None:
        """Kills whatever is left."""
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait()
