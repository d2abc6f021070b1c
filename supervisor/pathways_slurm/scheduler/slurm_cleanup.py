# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The job that Slurm starts once a service's own job has ended, to end what that has left.

A service that ends in order leaves nothing, and cancels it. But Slurm kills all that belongs to a
job which has not ended KillWait seconds after scancel, or that needs too much memory; of what waits
in the queue then, or of workers that have no lease, nobody else would take care.
"""

import os
import pwd
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
from pathways_slurm.scheduler.slurm_service_job import ServiceJob

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
    """Of a service that is, or is in, a job of Slurm's.

    Attributes:
        patience_s: For how long its command may try.
        name: As squeue shows it.
    """

    patience_s = 60.0 * (_MINUTES - 2)

    def __init__(
        self,
        job: ServiceJob,
        service: str,
        client: SlurmClient,
        environment: Mapping[str, str],
    ) -> None:
        """Asks nothing of Slurm.

        Args:
            job: Whose end it waits for.
            service: Name of the service, of which a job may have several; "" for the only one.
            client: To ask Slurm.
            environment: Of a process of that job.
        """
        self._job = job
        self._client = client
        self._environment = environment
        self.name = "-".join([f"{JOB_NAME_PREFIX}cleanup", job.id, *filter(None, [service])])

    @property
    def service_job(self) -> str:
        """As in SLURM_JOB_ID."""
        return self._job.id

    @property
    def may_be_booked(self) -> bool:
        """Whether an earlier run of the job may have done so."""
        return self._job.restarts > 0

    def is_booked(self) -> bool:
        """Whether it waits or runs. Raises SchedulerUnavailable."""
        listed = self._client.look(
            "squeue", "--noheader", f"--user={_user()}", f"--name={self.name}", "--format=%i"
        )
        return bool(listed.split())

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
            f"--dependency=afterany:{self._job.id}",
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

    def cancel(self) -> None:
        """Cancels it, and any other one that was submitted meanwhile; they may be over already.

        Raises:
            SchedulerUnavailable: Slurm gave no answer.
        """
        self._client.order("scancel", f"--user={_user()}", f"--name={self.name}")


def _user() -> str:
    # For root, Slurm would take other users' jobs of that name for meant as well.
    return pwd.getpwuid(os.getuid()).pw_name
