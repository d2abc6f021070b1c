# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""A service of an ordinary user on a cluster whose nodes are machines, as root sees it."""

import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

from slurm.devcluster.cluster import DevCluster, as_user
from tests.chaos import sightings
from tests.slurm.service.service import SlurmService

_COLUMNS = ("JobArrayID", "JobID", "State", "RestartCnt", "NodeList", "Name")


class UsersService(SlurmService):
    """Its home and its jobs are the user's, its program that of the user's copy of the checkout."""

    def __init__(
        self, home: Path, cluster: DevCluster, user: str, copy: Path, **settings: str
    ) -> None:
        own = {
            "PATHWAYS_ENVIRONMENT": str(copy / ".venv"),
            # Slurm's own default: nodes that do not answer hold up slurmctld, too.
            "PATHWAYS_SLURM_TIMEOUT_S": "15",
        }
        super().__init__(home, cluster, **{**own, **settings})
        self.user = user
        self._start = copy / "scripts" / "start_pathways.sh"

    def submit(self) -> str:
        """Submits the service; the job's id."""
        argv = ("sbatch", "--parsable", f"--output={self.log}", self._start)
        done = subprocess.run(
            as_user(self.user, *argv),
            env=self.environ,
            cwd=self.home.parent,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        self.jobs.append(done.stdout.strip())
        return self.jobs[-1]

    def queue(self) -> list[dict[str, Any]]:
        """Every job and array task of the user."""
        columns = ",".join(f"{name}:0|" for name in _COLUMNS)
        options = ("-h", "-r", "-t", "all", f"--user={self.user}")
        done = self.cluster.run("squeue", *options, "-O", columns, check=False)
        names = ("id", "job", "state", "restarts", "nodes", "name")
        return [
            dict(zip(names, line.split("|"), strict=False)) for line in done.stdout.splitlines()
        ]

    def slices(self) -> list[dict[str, Any]]:
        """As ``status`` shows them."""
        found: list[dict[str, Any]] = self._status_now()["slices"]
        return found

    def spent(self, index: int) -> Counter[str]:
        """How many restarts of a slice were counted as each cause."""
        shown = self.slices()[index]["budgets"]
        return Counter({cause: left["limit"] - left["left"] for cause, left in shown.items()})

    def told(self, index: int, since: float) -> list[str]:
        """Of a slice in its events, from a Unix time on."""
        about = [e for e in self.events() if e["subject"] == f"slice {index}"]
        return [event["message"] for event in about if event["time"] > since]

    def workers(self, index: int | None = None) -> list[sightings.Worker]:
        """The worker processes that live, of all incarnations, wherever they run."""
        found = sightings.workers(sightings.processes(str(self.home), ""))
        return [worker for worker in found if index in (None, worker.slice)]

    def worker(self, index: int, host: int) -> int:
        """Process of a host of a slice that is ready."""
        incarnation = self.slices()[index]["incarnation"]
        (worker,) = [
            worker
            for worker in self.workers(index)
            if (worker.host, worker.incarnation) == (host, incarnation)
        ]
        return worker.process.pid

    def supervisor(self) -> int:
        """The supervisor's process, also if it is stopped. Raises ProcessLookupError: none is."""
        named = [
            process
            for process in sightings.processes(str(self.home), "")
            if sightings.role_of(process) == "supervisor"
        ]
        if not named:
            raise ProcessLookupError(f"no supervisor of {self.home}")
        return named[0].pid

    def tasks_by_slice(self) -> Counter[int]:
        """How many tasks of each slice's index live."""
        live = (row["id"].rpartition("_")[2] for row in self.tasks())
        return Counter(int(index) for index in live if index.isdigit())
