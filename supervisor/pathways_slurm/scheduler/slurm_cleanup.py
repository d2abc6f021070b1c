# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The job that Slurm starts once a service's own job has ended, to end what that has left.

A service that ends in order leaves nothing, and cancels it. But Slurm kills all that belongs to a
job which has not ended KillWait seconds after scancel, or that needs too much memory; of what waits
in the queue then, or of workers that have no lease, nobody else would take care.
"""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from pathways_slurm.scheduler.base import SchedulerUnavailable
from pathways_slurm.scheduler.slurm_command import (
    SlurmClient,
    is_unavailable,
    refusal,
    without_slurm,
)
from pathways_slurm.scheduler.slurm_intents import array_id_in
from pathways_slurm.scheduler.slurm_options import JOB_NAME_PREFIX

# Far more than it needs, where Slurm answers.
_MINUTES = 10

# Where the service's job may be, the job after it may be as well.
_LIKE_THE_SERVICE = {
    "--partition": "SLURM_JOB_PARTITION",
    "--account": "SLURM_JOB_ACCOUNT",
    "--qos": "SLURM_JOB_QOS",
    "--reservation": "SLURM_JOB_RESERVATION",
}


class CleanupJob:
    """Of the service that is the Slurm job ``service_job``."""

    def __init__(
        self, service_job: str, client: SlurmClient, environment: Mapping[str, str]
    ) -> None:
        """``environment``: of a process of the service's job."""
        self.service_job = service_job
        self._client = client
        self._environment = environment

    @property
    def name(self) -> str:
        """As squeue shows it."""
        return f"{JOB_NAME_PREFIX}cleanup-{self.service_job}"

    def book(self, command: Sequence[str], variables: Mapping[str, str], log: Path) -> str:
        """Submits it, to run ``command`` on one CPU; returns its id.

        A second one, if this is called again, finds nothing left to do.

        Args:
            command: Absolute path and arguments.
            variables: For the command, beside those of the service.
            log: Appended to.

        Raises:
            SchedulerError: Slurm takes no such job.
            SchedulerUnavailable: Slurm gave no answer.
        """
        chosen = {
            option: self._environment.get(variable, "")
            for option, variable in _LIKE_THE_SERVICE.items()
        }
        argv = (
            "sbatch",
            "--parsable",
            f"--job-name={self.name}",
            # Also if the service's job fails. While that is started again, it has not ended.
            f"--dependency=afterany:{self.service_job}",
            "--nodes=1",
            "--ntasks=1",
            f"--time={_MINUTES}",
            "--requeue",
            "--open-mode=append",
            f"--output={str(log).replace('%', '%%')}",
            "--chdir=/",
            "--export=ALL",
            *(f"{option}={value}" for option, value in chosen.items() if value),
            f"--wrap=exec {shlex.join(command)}",
        )
        done = self._client.run(argv, without_slurm(self._environment) | dict(variables))
        if done.code is None or (done.code != 0 and is_unavailable(done.words)):
            raise SchedulerUnavailable(f"sbatch failed: {done.words}")
        job = array_id_in(done.out)
        if done.code != 0 or job is None:
            raise refusal(done, f"job {self.name} was not taken")
        return job

    def cancel(self, job: str) -> None:
        """Cancels one that was submitted; it may be over already.

        Raises:
            SchedulerUnavailable: Slurm gave no answer.
        """
        # By name, too: a slurmctld that was killed can give an id a second time.
        self._client.order("scancel", f"--name={self.name}", job)
