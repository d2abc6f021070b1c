# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""``pathways-slurm down``."""

import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pathways_slurm.cli.common import EXIT_OK, SECONDS, fail, service_paths
from pathways_slurm.cli.timeline import Timeline
from pathways_slurm.paths import ServicePaths

if TYPE_CHECKING:
    from pathways_slurm.service_lock import Holder

# For one command of Slurm's.
_SLURM_S = 30.0

# Between two tries to end what is left where Slurm does not answer.
_TRY_AGAIN_S = 5.0


@click.command(name="down")
@click.option(
    "--timeout",
    type=SECONDS,
    default=90.0,
    show_default=True,
    help="Seconds to wait for the end of everything.",
)
@click.option(
    "--of-job",
    metavar="ID",
    default="",
    help="Only what is left of the service that was this Slurm job; one that runs is left alone.",
)
def command(timeout: float, of_job: str) -> None:
    """End the service of PATHWAYS_HOME and PATHWAYS_NAME, and wait until nothing of it is left.

    Ends also what is left of a service whose supervisor was killed. Fine if nothing runs.
    """
    from pathways_slurm.store import RecordError

    paths = service_paths()
    timeline = Timeline(paths.events)
    try:
        deadline = time.monotonic() + timeout
        if not of_job:
            # The root first: it would start a supervisor that has ended again, or is about to.
            for lock in (paths.root_lock, paths.lock):
                _end_holder(lock, paths, timeline, deadline)
        code = _end_leftovers(paths, of_job)
        while of_job and code != EXIT_OK and time.monotonic() < deadline:
            # Nobody else will try again.
            time.sleep(_TRY_AGAIN_S)
            code = _end_leftovers(paths, of_job)
        if not of_job:
            _withdraw_cleanup(paths)
    except RecordError as error:
        fail(str(error))
    timeline.show_new()
    if code != EXIT_OK:
        fail("something of the service may be left; 'pathways-slurm status' and the events tell")
    click.echo("nothing of the service is left")
    sys.exit(EXIT_OK)


def _end_holder(lock: Path, paths: ServicePaths, timeline: Timeline, deadline: float) -> None:
    """Asks the process that holds ``lock`` to end, wherever it is, and waits until it has."""
    from pathways_slurm.processes import send_signal
    from pathways_slurm.service_lock import Holder, lock_holder

    asked: set[Holder] = set()
    while (holder := lock_holder(lock)) is not None:
        # It may have taken the lock just now, and not have written down who it is.
        if holder not in asked and holder.process is not None:
            asked.add(holder)
            if not holder.is_here():
                _cancel_job(holder, paths)
                continue
            try:
                send_signal(holder.process, signal.SIGTERM)
            except PermissionError:
                fail(f"the service ({holder}) is another user's, who can end it")
        timeline.show_new()
        if time.monotonic() > deadline:
            fail(f"the service ({holder}) has not ended; 'pathways-slurm status' shows it")
        time.sleep(0.1)


def _cancel_job(holder: "Holder", paths: ServicePaths) -> None:
    """Has Slurm end a service that runs on another machine."""
    from pathways_slurm.scheduler.base import SchedulerUnavailable
    from pathways_slurm.scheduler.slurm_command import SlurmClient
    from pathways_slurm.store import load_record

    record = load_record(paths.record)
    job = "" if record is None else record.service_job
    if not job:
        fail(f"the service runs on another machine ({holder}); run 'pathways-slurm down' there")
    click.echo(f"the service ({holder}) is Slurm job {job}: cancelling it")
    try:
        done = SlurmClient(_SLURM_S, os.environ).order("scancel", job)
    except SchedulerUnavailable as error:
        fail(f"the service is Slurm job {job} ({holder}), and could not be cancelled: {error}")
    if done.code != 0:
        fail(f"the service is Slurm job {job} ({holder}); scancel says: {done.words}")


def _withdraw_cleanup(paths: ServicePaths) -> None:
    """Cancels the job that would clean up; Slurm may hold it for good where it failed to start."""
    from pathways_slurm.paths import DEFAULT_NAME
    from pathways_slurm.scheduler.base import SchedulerUnavailable
    from pathways_slurm.schedulers import cleanup_job_of_record
    from pathways_slurm.store import load_record

    record = load_record(paths.record)
    name = os.environ.get("PATHWAYS_NAME", "").strip() or DEFAULT_NAME
    job = None if record is None else cleanup_job_of_record(record, name)
    if job is None:
        return
    try:
        job.cancel()
    except SchedulerUnavailable as error:
        click.echo(f"the job {job.name} may be left in Slurm's queue: {error}", err=True)


def _end_leftovers(paths: ServicePaths, of_job: str) -> int:
    from pathways_slurm.logs import log_to
    from pathways_slurm.service_lock import AlreadyRunning
    from pathways_slurm.supervise import end_leftovers

    if not paths.logs.is_dir():
        return EXIT_OK
    log_to(paths.component_log("supervisor"))
    reason = f"its job {of_job} has ended" if of_job else "asked to by 'pathways-slurm down'"
    try:
        return end_leftovers(paths, reason, of_job)
    except AlreadyRunning as error:
        if of_job:
            # It has ended what was left before it began, or is doing so.
            click.echo(f"nothing to do: {error}")
            sys.exit(EXIT_OK)
        fail(f"a service was started meanwhile: {error}")
