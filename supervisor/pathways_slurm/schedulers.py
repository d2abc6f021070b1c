# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Which scheduler runs a service's slices."""

import ipaddress
import os
from typing import TYPE_CHECKING

from pathways_slurm.paths import DEFAULT_NAME, ServicePaths
from pathways_slurm.scheduler.base import Scheduler

if TYPE_CHECKING:
    from pathways_slurm.config import Settings
    from pathways_slurm.scheduler.slurm_cleanup import CleanupJob
    from pathways_slurm.store import RunRecord

# For one command of Slurm's, where no setting is at hand.
_SLURM_S = 30.0


def make_scheduler(settings: "Settings") -> Scheduler:
    """The scheduler that the settings ask for."""
    if settings.scheduler == "local":
        return _local(settings.paths, str(settings.local_network))
    from pathways_slurm.scheduler.slurm import SlurmScheduler

    return SlurmScheduler(
        settings.paths.slurm_arrays,
        settings.slurm_options,
        service_address=settings.service_address,
        timeout_s=settings.slurm_timeout_s,
        power_down=settings.power_down == "auto",
    )


def service_was_restarted(settings: "Settings") -> bool:
    """Whether this process belongs to a job that the scheduler has started before.

    What is left of the earlier run may then still be on its way out, on another machine.
    """
    if settings.scheduler != "slurm":
        return False
    from pathways_slurm.scheduler.slurm_service_job import ServiceJob

    job = ServiceJob.of(os.environ)
    return job is not None and job.restarts > 0


def cleanup_job(settings: "Settings") -> "CleanupJob | None":
    """What ends the leftovers of the job that this service is; None if it is none of Slurm's."""
    if settings.scheduler != "slurm":
        return None
    from pathways_slurm.scheduler.slurm_cleanup import CleanupJob
    from pathways_slurm.scheduler.slurm_command import SlurmClient
    from pathways_slurm.scheduler.slurm_service_job import ServiceJob

    job = ServiceJob.of(os.environ)
    if job is None:
        return None
    client = SlurmClient(settings.slurm_timeout_s, os.environ)
    return CleanupJob(job, _of_several(settings.name), client, os.environ)


def cleanup_job_of_record(record: "RunRecord", name: str) -> "CleanupJob | None":
    """The same of a service called ``name`` that has run; only to be cancelled."""
    if record.scheduler != "slurm" or not record.service_job:
        return None
    from pathways_slurm.scheduler.slurm_cleanup import CleanupJob
    from pathways_slurm.scheduler.slurm_command import SlurmClient
    from pathways_slurm.scheduler.slurm_service_job import ServiceJob

    job = ServiceJob(record.service_job, 0)
    return CleanupJob(job, _of_several(name), SlurmClient(_SLURM_S, os.environ), os.environ)


def _of_several(name: str) -> str:
    return "" if name == DEFAULT_NAME else name


def scheduler_of_record(paths: ServicePaths, record: "RunRecord") -> Scheduler:
    """The scheduler of a run that is only to be ended, so that no setting of it is needed.

    Raises:
        ValueError: The record names a scheduler that does not exist.
    """
    if record.scheduler == "local":
        return _local(paths, record.network)
    if record.scheduler == "slurm":
        from pathways_slurm.scheduler.slurm import SlurmScheduler
        from pathways_slurm.scheduler.slurm_options import SlurmOptions

        return SlurmScheduler(paths.slurm_arrays, SlurmOptions())
    raise ValueError(f"no scheduler is called {record.scheduler!r}; valid: local, slurm")


def _local(paths: ServicePaths, network: str) -> Scheduler:
    from pathways_slurm.scheduler.local import LocalScheduler

    return LocalScheduler(paths.local_arrays, ipaddress.IPv4Network(network))
