# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""``pathways-slurm down``."""

import signal
import sys
import time
from pathlib import Path

import click

from pathways_slurm.cli.common import EXIT_OK, SECONDS, fail, service_paths
from pathways_slurm.cli.timeline import Timeline
from pathways_slurm.paths import ServicePaths


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
        if not of_job:
            deadline = time.monotonic() + timeout
            # The root first: it would start a supervisor that has ended again, or is about to.
            for lock in (paths.root_lock, paths.lock):
                _end_holder(lock, timeline, deadline)
        code = _end_leftovers(paths, of_job)
    except RecordError as error:
        fail(str(error))
    timeline.show_new()
    if code != EXIT_OK:
        fail("something of the service may be left; 'pathways-slurm status' and the events tell")
    click.echo("nothing of the service is left")
    sys.exit(EXIT_OK)


def _end_holder(lock: Path, timeline: Timeline, deadline: float) -> None:
    """Asks the process that holds ``lock`` to end, and waits until it has."""
    from pathways_slurm.processes import identify, send_signal
    from pathways_slurm.store import lock_holder

    asked: set[int] = set()
    while (pid := lock_holder(lock)) is not None:
        if pid not in asked and (holder := identify(pid)) is not None:
            send_signal(holder, signal.SIGTERM)
            asked.add(pid)
        timeline.show_new()
        if time.monotonic() > deadline:
            fail(f"process {pid} of the service has not ended; 'pathways-slurm status' shows it")
        time.sleep(0.1)


def _end_leftovers(paths: ServicePaths, of_job: str) -> int:
    from pathways_slurm.logs import log_to
    from pathways_slurm.store import AlreadyRunning
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
