# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The contract suite's harness for the Slurm scheduler, on a devcluster."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from slurm.devcluster.cluster import DevCluster
from tests.contract.harness import SchedulerHarness

from pathways_slurm.scheduler.base import Scheduler
from pathways_slurm.scheduler.slurm import SlurmScheduler
from pathways_slurm.scheduler.slurm_options import SlurmOptions


class SlurmHarness(SchedulerHarness):
    """Tasks are Slurm's, and run on this machine all the same."""

    patience_s = 40.0

    def __init__(self, directory: Path, cluster: DevCluster, partition: str = "tpu") -> None:
        super().__init__(directory)
        self.cluster = cluster
        self.partition = partition
        self.kill_wait_s = cluster.options.kill_wait_s
        self.notes = directory / "notes"

    def factory(self) -> Callable[[], Scheduler]:
        return self.slurm_factory()

    def delayed_factory(self) -> Callable[[], Scheduler]:
        # Every requeued task waits for the life of a credential, longer than any test.
        assert self.cluster.options.cred_expire_s > 2 * self.patience_s
        return self.factory()

    def slurm_factory(self, timeout_s: float = 15.0) -> Callable[[], SlurmScheduler]:
        """As ``factory``, for what only this scheduler can be told."""
        return partial(
            SlurmScheduler,
            self.notes,
            SlurmOptions(partition=self.partition),
            timeout_s=timeout_s,
            settle_s=2.0,
            environment={**os.environ, "SLURM_CONF": str(self.cluster.conf)},
        )

    def slurm(self, *argv: str) -> str:
        """What a command of Slurm's prints."""
        return self.cluster.run(*argv).stdout

    def arrays(self, tag: str) -> set[str]:
        """The ids of all arrays that Slurm lists with this tag."""
        name = f"--name=pathways-{tag}"
        return set(self.slurm("squeue", "-h", "-t", "all", name, "-O", "ArrayJobID:0").split())
