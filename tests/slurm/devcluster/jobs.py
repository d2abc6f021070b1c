# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Jobs of one test on a devcluster, and waiting for what becomes of them."""

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path

from slurm.devcluster.cluster import DevCluster, as_user

LIVE = ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING")


@dataclasses.dataclass(frozen=True)
class Row:
    """One task or job in the queue."""

    id: str
    state: str
    reason: str
    restarts: int
    nodes: str


class Jobs:
    """What one test has submitted. Its scripts and logs are in ``directory``.

    Root submits as another ``user``, who owns the directory.
    """

    def __init__(self, cluster: DevCluster, directory: Path, user: str | None = None) -> None:
        self.cluster = cluster
        self.directory = directory
        self._user = user
        self._ids: list[str] = []

    def submit(self, script: str, *options: str) -> str:
        """Submits a batch script and returns the job's id."""
        path = self.directory / f"job-{len(self._ids)}.sh"
        path.write_text(f"#!/bin/bash\n{script}\n")
        argv = ["sbatch", "--parsable", "--open-mode=append", f"--chdir={self.directory}"]
        become = as_user(self._user) if self._user else []
        done = self.cluster.run(*become, *argv, "--output=%x.log", *options, path)
        self._ids.append(done.stdout.strip())
        return self._ids[-1]

    def rows(self, job: str) -> list[Row]:
        """The job's tasks, or the job itself."""
        columns = "JobArrayID:0|,State:0|,Reason:0|,RestartCnt:0|,NodeList:0|"
        done = self.cluster.run("squeue", "-h", "-r", "-t", "all", "-j", job, "-O", columns)
        rows = [line.split("|")[:5] for line in done.stdout.splitlines()]
        return [
            Row(name.strip(), state, reason, int(restarts), nodes)
            for name, state, reason, restarts, nodes in rows
        ]

    def wait(self, job: str, what: str, wanted: Callable[[Row], bool]) -> list[Row]:
        """The rows as soon as every one is as wanted."""
        return self.wait_for_rows(job, f"{job} {what}", lambda rows: all(map(wanted, rows)))

    def wait_for_rows(self, job: str, what: str, wanted: Callable[[list[Row]], bool]) -> list[Row]:
        """The rows as soon as they are as wanted; a failure says how they were at last."""
        seen: list[Row] = []

        def look() -> bool:
            seen[:] = self.rows(job)
            return wanted(seen)

        try:
            until(look, what)
        except AssertionError as error:
            raise AssertionError(f"{error}; seen last: {seen}") from None
        return seen

    def running(self, job: str) -> list[Row]:
        return self.wait(job, "runs", lambda row: row.state == "RUNNING")

    def log(self, script: int = 0) -> str:
        path = self.directory / f"job-{script}.sh.log"
        return path.read_text() if path.exists() else ""

    def end(self) -> None:
        for job in self._ids:
            self.cluster.run("scancel", "--signal=KILL", "--full", job, check=False)
            self.cluster.run("scancel", job, check=False)
        for job in self._ids:
            self.wait(job, "ends", lambda row: row.state not in LIVE)


# Slurm looks only every 30 s whether the nodes of a job are up that it had to boot.
PATIENCE_S = 60.0


def until[T](look: Callable[[], T], what: str, timeout_s: float = PATIENCE_S) -> T:
    """The first true value that ``look`` returns; fails the test after ``timeout_s``."""
    deadline = time.monotonic() + timeout_s
    while not (value := look()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s:g} s: {what}")
        time.sleep(0.05)
    return value
