# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Slurm's own preemption: jobs of others, who have a better right to a slice's nodes."""

from collections.abc import Sequence

from tests.e2e.service import wait_until
from tests.slurm.service.service import SlurmService


class Preemption:
    """A job of the better partition on the nodes of one slice."""

    def __init__(self, service: SlurmService, nodes: Sequence[str]) -> None:
        self._service = service
        argv = ["sbatch", "--parsable", "--partition=tpu", f"--nodes={len(nodes)}"]
        argv += [f"--nodelist={','.join(nodes)}", "--output=/dev/null", "--wrap=sleep 600"]
        self.job = service.cluster.run(*argv).stdout.strip()
        service.jobs.append(self.job)

    def wait_until_it_runs(self) -> None:
        """Then the slice has gone."""

        def running() -> bool:
            return self._service.job_state(self.job) == "RUNNING"

        wait_until(running, 90.0, lambda: f"the better job runs: {self._service.logs()}", 0.2)

    def end(self) -> None:
        """Gives the nodes back."""
        self._service.cluster.run("scancel", self.job)
