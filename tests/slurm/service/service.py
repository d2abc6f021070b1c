# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""A service that is a Slurm job, driven by sbatch and the command line only."""

import re
import subprocess
from pathlib import Path
from typing import Any

from slurm.devcluster.cluster import DevCluster
from tests.e2e.service import CHECKOUT, ServiceUnderTest, wait_until

START = CHECKOUT / "scripts" / "start_pathways.sh"
LIVE = ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING")


class SlurmService(ServiceUnderTest):
    """One service on a devcluster, in a home of its own; two slices of two hosts by default."""

    def __init__(self, home: Path, cluster: DevCluster, **settings: str) -> None:
        super().__init__(
            home,
            **{
                # Whatever environments have been set up besides.
                "PATHWAYS_ENVIRONMENT": str(CHECKOUT / ".venv"),
                "SLICE_SHAPE": "2x4",
                "MIN_SLICES": "1",
                "MAX_SLICES": "2",
                "PATHWAYS_SCHEDULER": "slurm",
                "PATHWAYS_SLURM_PARTITION": "tpu",
                "PATHWAYS_SLURM_TIMEOUT_S": "5",
                "PATHWAYS_TICK_S": "0.5",
                **settings,
            },
        )
        self.cluster = cluster
        self.jobs: list[str] = []

    @property
    def environ(self) -> dict[str, str]:
        return {**self.cluster.env, **self.settings}

    def sbatch(self, *options: str, script: Path = START, cwd: Path | None = None) -> str:
        """Submits the service from a directory that has nothing to do with it; the job's id."""
        where = cwd or self.home.parent
        done = subprocess.run(
            ["sbatch", "--parsable", f"--output={self.log}", *options, str(script)],
            env=self.environ,
            cwd=where,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        )
        self.jobs.append(done.stdout.strip())
        return self.jobs[-1]

    @property
    def log(self) -> Path:
        """What the service's job prints."""
        return self.home.parent / "service.log"

    def logs(self) -> str:
        said = self.log.read_text() if self.log.exists() else "(the job has printed nothing)"
        return f"--- job\n{said}\n{super().logs()}"

    def queue(self) -> list[dict[str, Any]]:
        """Every job and array task of the user."""
        columns = "JobArrayID:0|,JobID:0|,State:0|,RestartCnt:0|,NodeList:0|,Name:0|"
        done = self.cluster.run("squeue", "-h", "-r", "-t", "all", "--me", "-O", columns)
        names = ("id", "job", "state", "restarts", "nodes", "name")
        return [
            dict(zip(names, line.split("|"), strict=False)) for line in done.stdout.splitlines()
        ]

    def tasks(self, *, live: bool = True) -> list[dict[str, Any]]:
        """The array tasks of this service."""
        run_ids = self.run_ids()
        return [
            row
            for row in self.queue()
            if any(run in row["name"] for run in run_ids) and (not live or row["state"] in LIVE)
        ]

    def run_ids(self) -> set[str]:
        """Of all runs that this service ever had."""
        found = (re.match(r"run (\w+) starts", event["message"]) for event in self.events())
        return {match[1] for match in found if match}

    def job_state(self, job: str) -> str:
        """Of the service's own job; "" once Slurm has forgotten it."""
        return next((row["state"] for row in self.queue() if row["job"] == job), "")

    def batch_pid(self) -> int:
        """The batch script's process."""
        return self.pid_of("slurm_script")

    def expect_nothing_left(self, within_s: float = 60.0) -> None:
        """As for any service; and no task of its arrays is left in the queue."""

        def gone() -> bool:
            return not self.tasks()

        wait_until(gone, within_s, f"no array task is left: {self.tasks()}\n{self.logs()}", 0.2)
        super().expect_nothing_left(within_s)

    def close(self) -> None:
        """Also ends its jobs, and waits until the cluster is as it was."""
        if self.jobs:
            self.cluster.run("scancel", *self.jobs, check=False)
        for row in self.tasks():
            self.cluster.run("scancel", row["id"], check=False)
        super().close()
        wait_until(
            lambda: not [row for row in self.queue() if row["state"] in LIVE],
            60.0,
            "the queue is empty",
            0.2,
        )
