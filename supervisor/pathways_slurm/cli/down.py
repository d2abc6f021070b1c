# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""``pathways-slurm down``."""

import signal
import sys
import time

import click

from pathways_slurm.cli.common import EXIT_FAILED, EXIT_OK, fail, service_paths
from pathways_slurm.cli.timeline import Timeline
from pathways_slurm.paths import ServicePaths


@click.command(name="down")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=90.0,
    show_default=True,
    help="Seconds to wait for the end of everything.",
)
def command(timeout: float) -> None:
    """End the service of PATHWAYS_HOME and PATHWAYS_NAME, and wait until nothing of it is left.

    Ends also what is left of a service whose supervisor was killed. Fine if nothing runs.
    """
    from pathways_slurm.store import RecordError, supervisor_pid

    paths = service_paths()
    timeline = Timeline(paths.events)
    try:
        if supervisor_pid(paths.lock) is not None:
            _ask(paths)
            _await_end(paths, timeline, timeout)
        code = _end_leftovers(paths)
    except RecordError as error:
        fail(str(error))
    timeline.show_new()
    if code != EXIT_OK:
        fail("something of the service may be left; 'pathways-slurm status' and the events tell")
    click.echo("nothing of the service is left")
    sys.exit(EXIT_OK)


def _ask(paths: ServicePaths) -> None:
    from pathways_slurm.processes import identify, send_signal
    from pathways_slurm.store import supervisor_pid

    pid = supervisor_pid(paths.lock)
    if pid and (supervisor := identify(pid)) is not None:
        # Its end by order is final: no root starts it again. The root itself is left alone; it may
        # be a shell in which "supervise" was called by hand.
        send_signal(supervisor, signal.SIGTERM)


def _await_end(paths: ServicePaths, timeline: Timeline, timeout: float) -> None:
    from pathways_slurm.store import supervisor_pid

    deadline = time.monotonic() + timeout
    while (pid := supervisor_pid(paths.lock)) is not None:
        timeline.show_new()
        if time.monotonic() > deadline:
            fail(f"the supervisor (pid {pid}) has not ended after {timeout:g} s", EXIT_FAILED)
        time.sleep(0.1)


def _end_leftovers(paths: ServicePaths) -> int:
    from pathways_slurm.logs import log_to
    from pathways_slurm.store import AlreadyRunning
    from pathways_slurm.supervise import end_leftovers

    if not paths.logs.is_dir():
        return EXIT_OK
    log_to(paths.component_log("supervisor"))
    try:
        return end_leftovers(paths, "asked to by 'pathways-slurm down'")
    except AlreadyRunning as error:
        fail(f"a service was started meanwhile: {error}")
