# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Has Slurm itself see to the end of what a service leaves, should nobody of it live to do so.

Where it can't be had, the service runs without it: that is no reason to have no service.
"""

import sys
from dataclasses import replace
from pathlib import Path

from pathways_slurm.config import Settings
from pathways_slurm.logs import get_logger
from pathways_slurm.scheduler.base import SchedulerError, SchedulerUnavailable
from pathways_slurm.schedulers import cleanup_job
from pathways_slurm.store import RunRecord

_log = get_logger(__name__)


def booked(settings: Settings, record: RunRecord) -> RunRecord:
    """The record of a run that begins, with the job that is to clean up after it, if any."""
    job = cleanup_job(settings)
    if job is None:
        return record
    record = replace(record, service_job=job.service_job)
    program = Path(sys.executable).parent / "pathways-slurm"
    try:
        booked = job.book(
            [str(program), "down", f"--of-job={job.service_job}"],
            {"PATHWAYS_HOME": str(settings.home), "PATHWAYS_NAME": settings.name},
            settings.paths.component_log("cleanup"),
        )
    except (SchedulerError, SchedulerUnavailable) as error:
        _log.warning("nothing will clean up if all of this job is killed at once", why=str(error))
        return record
    _log.info("a job is booked that cleans up should all of this one be killed", job=booked)
    return replace(record, cleanup_job=booked)


def withdraw(settings: Settings, record: RunRecord) -> None:
    """Cancels that job, as the run has ended in order."""
    job = cleanup_job(settings)
    if job is None or not record.cleanup_job:
        return
    try:
        job.cancel(record.cleanup_job)
    except SchedulerUnavailable as error:
        _log.warning("the job that cleans up is left, and will find nothing", why=str(error))
