# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""``pathways-slurm supervise``."""

import os
import sys
from typing import TYPE_CHECKING

import click

from pathways_slurm.cli.common import (
    EXIT_BUG,
    EXIT_BUSY,
    EXIT_CODES_HELP,
    EXIT_FAILED,
    fail,
    fail_usage,
    settings_to_start_with,
)

if TYPE_CHECKING:
    from pathways_slurm.paths import ServicePaths


@click.command(name="supervise", epilog=EXIT_CODES_HELP)
def command() -> None:
    """Run the supervisor in the foreground.

    The run belongs to the process that calls this (a shell, a batch script, or "up"): the service
    ends when that process ends, and a supervisor that it starts again goes on with the same run.
    """
    from pathways_slurm import containers
    from pathways_slurm.faults import SettingsError
    from pathways_slurm.logs import get_logger, log_to
    from pathways_slurm.processes import identify
    from pathways_slurm.scheduler.base import SchedulerError
    from pathways_slurm.service_lock import AlreadyRunning
    from pathways_slurm.store import RecordError
    from pathways_slurm.supervise import supervise

    root = identify(os.getppid())
    settings = settings_to_start_with()
    if root is None or os.getppid() != root.pid:
        fail("the process that started the supervisor has ended already", EXIT_FAILED)
    log = settings.paths.component_log("supervisor")
    try:
        log_to(log)
        code = supervise(settings, root)
        # Here, too, as the process that the run belongs to may have been killed.
        if settings.container == "enroot":
            containers.remove_stale(settings)
        if code == EXIT_FAILED:
            # Where whoever submitted the service looks first.
            fail(f"the service has failed: {_reason(settings.paths)}", EXIT_FAILED)
        sys.exit(code)
    except SettingsError as error:
        fail_usage(map(str, error.faults))
    except AlreadyRunning as error:
        fail(str(error), EXIT_BUSY)
    except (RecordError, SchedulerError) as error:
        fail(str(error), EXIT_FAILED)
    except Exception:
        get_logger(__name__).exception("the supervisor has failed by an error of its own")
        fail(f"the supervisor has failed by an error of its own; see {log}", EXIT_BUG)


def _reason(paths: "ServicePaths") -> str:
    from pathways_slurm.status import read_status

    try:
        return str(read_status(paths)["reason"])
    except (OSError, ValueError):
        return f"see {paths.component_log('supervisor')}"
