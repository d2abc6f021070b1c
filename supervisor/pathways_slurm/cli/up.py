# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""``pathways-slurm up``."""

import os
import subprocess
import sys
import time

import click

from pathways_slurm.cli.common import (
    EXIT_BUSY,
    EXIT_CODES_HELP,
    EXIT_FAILED,
    EXIT_OK,
    SECONDS,
    fail,
    settings_help,
    settings_to_start_with,
)
from pathways_slurm.cli.timeline import Timeline
from pathways_slurm.files import PRIVATE_FILE_MODE
from pathways_slurm.paths import ServicePaths
from pathways_slurm.states import ServicePhase


class _Command(click.Command):
    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        with formatter.section("Settings, from the environment"):
            formatter.write_dl(settings_help())


@click.command(name="up", cls=_Command, epilog=EXIT_CODES_HELP)
@click.option("-d", "--detach", is_flag=True, help="Return once the service is ready to be used.")
@click.option(
    "--timeout",
    type=SECONDS,
    help="With --detach: seconds to wait for the service to be ready.  [default: no limit]",
)
def command(detach: bool, timeout: float | None) -> None:
    """Start the service and show what happens.

    Ctrl-C, or the end of this process in any other way, ends the service.
    """
    from pathways_slurm import containers
    from pathways_slurm.budget import Budget
    from pathways_slurm.root import Root
    from pathways_slurm.service_lock import AlreadyRunning, lock_holder, service_lock

    settings = settings_to_start_with()
    for lock in (settings.paths.root_lock, settings.paths.lock):
        if (holder := lock_holder(lock)) is not None:
            where = settings.paths.directory
            fail(f"this service runs already ({holder}); its state is in {where}", EXIT_BUSY)
    if detach:
        sys.exit(_detach(settings.paths, timeout))

    timeline = Timeline(settings.paths.events)
    click.echo(f"service {settings.name}: files in {settings.paths.directory}")
    root = Root(
        argv=[sys.executable, "-m", "pathways_slurm", "supervise"],
        budget=Budget(settings.restart_budget, settings.restart_window_s),
        clean_up=lambda reason: _clean_up(settings.paths, reason),
        report=timeline.say,
        meanwhile=timeline.show_new,
    )
    try:
        with service_lock(settings.paths.root_lock):
            code = root.run()
    except AlreadyRunning as error:
        fail(str(error), EXIT_BUSY)
    if settings.container == "enroot":
        containers.remove_stale(settings)
    timeline.show_new()
    sys.exit(code)


def _clean_up(paths: ServicePaths, reason: str) -> int:
    from pathways_slurm.logs import log_to
    from pathways_slurm.service_lock import AlreadyRunning
    from pathways_slurm.store import RecordError
    from pathways_slurm.supervise import end_leftovers

    log_to(paths.component_log("supervisor"))
    try:
        return end_leftovers(paths, reason)
    except AlreadyRunning as error:
        fail(str(error), EXIT_BUSY)
    except RecordError as error:
        fail(str(error))


def _detach(paths: ServicePaths, timeout: float | None) -> int:
    from pathways_slurm.service_lock import lock_holder
    from pathways_slurm.status import read_status

    log = paths.component_log("up")
    timeline = Timeline(paths.events)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE_FILE_MODE)
    with os.fdopen(descriptor, "wb") as output:
        child = subprocess.Popen(
            [sys.executable, "-m", "pathways_slurm", "up"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    began = time.monotonic()
    while True:
        timeline.show_new()
        if (code := _poll(child)) is not None:
            click.echo(log.read_text(errors="replace"), err=True, nl=False)
            fail(f"the service has ended with code {code}; its output is in {log}", code or 1)
        # The status file may still tell of an earlier run until this one has its lock.
        current = lock_holder(paths.lock) is not None
        if current and read_status(paths)["service"] == ServicePhase.READY:
            click.echo(f"the service is ready: {paths.cluster_env}")
            return EXIT_OK
        if timeout is not None and time.monotonic() - began > timeout:
            click.echo(
                f"pathways-slurm: not ready after {timeout:g} s; it goes on starting. "
                "'pathways-slurm status' shows it, 'pathways-slurm down' ends it",
                err=True,
            )
            return EXIT_FAILED


def _poll(child: "subprocess.Popen[bytes]") -> int | None:
    try:
        return child.wait(0.2)
    except subprocess.TimeoutExpired:
        return None
