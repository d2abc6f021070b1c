# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What several commands share: settings with all their faults, and exit codes."""

import math
import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, NoReturn

import click

from pathways_slurm.paths import ServicePaths

if TYPE_CHECKING:
    from pathways_slurm.config import Settings

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_BUSY = 3
# An error in this program itself (sysexits.h EX_SOFTWARE): the supervisor's parent tries again.
EXIT_BUG = 70


class _Seconds(click.ParamType[float]):
    name = "seconds"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        try:
            seconds = float(str(value))
        except ValueError:
            seconds = math.nan
        # Neither nan nor infinity is a time to wait for.
        if not 0 <= seconds < math.inf:
            self.fail(f"{value!r} is not a number of seconds from 0", param, ctx)
        return seconds


SECONDS = _Seconds()

EXIT_CODES_HELP = """\b
Exit codes:
  0  ended by order; nothing of it is left
  1  the service failed; the reason is the last line
  2  settings or options are wrong; nothing was started
  3  a supervisor runs this service already"""


def service_paths() -> ServicePaths:
    """Paths of the service that PATHWAYS_HOME and PATHWAYS_NAME select; exits 2 if they are bad."""
    try:
        return ServicePaths.from_environ(os.environ)
    except ValueError as error:
        fail_usage([str(error)])


def fail_usage(faults: Iterable[str]) -> NoReturn:
    """Prints every fault on a line of its own and exits with 2."""
    listed = list(faults)
    click.echo(
        f"pathways-slurm: {len(listed)} setting(s) are wrong; nothing was started:", err=True
    )
    for fault in listed:
        click.echo(f"  - {fault}", err=True)
    sys.exit(EXIT_USAGE)


def fail(message: str, code: int = EXIT_FAILED) -> NoReturn:
    """Prints one error and exits."""
    click.echo(f"pathways-slurm: {message}", err=True)
    sys.exit(code)


def settings_to_start_with() -> "Settings":
    """The settings of a service that may start, with its directories made.

    If anything is wrong, prints it together with all that is wrong on this machine, and exits 2.
    """
    from pathways_slurm.config import read_settings, settings_warnings
    from pathways_slurm.faults import SettingsError
    from pathways_slurm.files import make_private_dir
    from pathways_slurm.preflight import load_checked_settings

    for warning in settings_warnings(os.environ):
        click.echo(f"pathways-slurm: warning: {warning}", err=True)
    try:
        settings, faults = read_settings(os.environ)
        if faults:
            load_checked_settings(os.environ)
        try:
            for directory in (settings.paths.state, settings.paths.logs):
                make_private_dir(directory)
        except OSError as error:
            load_checked_settings(os.environ)
            fail(str(error))
    except SettingsError as error:
        fail_usage(map(str, error.faults))
    return settings


def settings_help() -> list[tuple[str, str]]:
    """Every setting and what it is about, for a help text."""
    from pathways_slurm.config import settings_table

    return [
        (
            row.variable,
            f"{row.meaning}: {row.valid}.  "
            + ("[required]" if row.default is None else f"[default: {row.default}]"),
        )
        for row in settings_table()
    ]
