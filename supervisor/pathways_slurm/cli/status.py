# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""``pathways-slurm status``."""

import json
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from pathways_slurm.cli.common import EXIT_OK, fail, service_paths
from pathways_slurm.paths import ServicePaths

if TYPE_CHECKING:
    from rich.console import Console

EXIT_NOT_READY = 4

_LOOK_AGAIN_S = 0.5


@click.command(name="status")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("-w", "--watch", is_flag=True, help="Show it anew as it changes, until Ctrl-C.")
def command(as_json: bool, watch: bool) -> None:
    """Show the service and its slices, and the last events.

    Exit codes: 0 if the service is ready, 4 if it is not.
    """
    from pathways_slurm.states import ServicePhase

    if watch and as_json:
        raise click.UsageError("--json and --watch exclude each other; to follow in JSON: events")
    paths = service_paths()
    if watch:
        _watch(paths)
    status = _read(paths)
    if as_json:
        click.echo(json.dumps(status, indent=1))
    else:
        from pathways_slurm.cli.status_view import view

        _console().print(view(status, _last_events(paths), time.time()))
    sys.exit(EXIT_OK if status["service"] == ServicePhase.READY else EXIT_NOT_READY)


def _watch(paths: ServicePaths) -> None:
    """Shows the status in place on a terminal, or each new one below the last. Never returns."""
    from rich.live import Live

    from pathways_slurm.cli.status_view import view

    console = _console()
    # So that the terminal's cursor is put back before this process ends by the signal.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        if not console.is_terminal:
            shown = None
            while True:
                if (status := _read(paths)) != shown:
                    shown = status
                    console.print(view(status, (), time.time()))
                time.sleep(_LOOK_AGAIN_S)
        with Live(console=console, auto_refresh=False, vertical_overflow="visible") as live:
            while True:
                live.update(view(_read(paths), _last_events(paths), time.time()), refresh=True)
                time.sleep(_LOOK_AGAIN_S)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)


def _read(paths: ServicePaths) -> dict[str, Any]:
    from pathways_slurm.status import read_status

    try:
        return read_status(paths)
    except (OSError, ValueError) as error:
        fail(f"{paths.status} can't be read: {error}")


def _last_events(paths: ServicePaths) -> tuple[str, ...]:
    from pathways_slurm.cli.events import sentence
    from pathways_slurm.cli.tail import Tail
    from pathways_slurm.events import parse_event

    try:
        lines = Tail(paths.events, last=5).lines()
    except OSError:
        return ()
    return tuple(sentence(event) for line in lines if (event := parse_event(line)) is not None)


def _console() -> "Console":
    from rich.console import Console

    # A pipe has no width; its reader wants whole lines.
    return Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 200)
