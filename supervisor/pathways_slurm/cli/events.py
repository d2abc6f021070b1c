# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""``pathways-slurm events``."""

import time
from datetime import datetime

import click

from pathways_slurm.cli.common import fail, service_paths
from pathways_slurm.cli.tail import Tail
from pathways_slurm.events import Event, parse_event

_LOOK_AGAIN_S = 0.2


@click.command(name="events")
@click.option("-f", "--follow", is_flag=True, help="Go on with new events as they come.")
@click.option(
    "-n",
    "--lines",
    type=click.IntRange(min=0),
    help="Only the last N.  [default: all, or the last 20 with --follow]",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def command(follow: bool, lines: int | None, as_json: bool) -> None:
    """Show what happened to the service: every transition with its reason, oldest first.

    \b
    Examples:
      pathways-slurm events -n 5
      pathways-slurm events --follow
      pathways-slurm events --json | jq 'select(.subject == "slice 1")'
    """
    path = service_paths().events
    if not path.exists() and not follow:
        fail(f"there are no events yet: no service was ever started in {path.parent}")
    try:
        tail = Tail(path, 20 if lines is None and follow else lines)
        while True:
            for line in tail.lines():
                if (event := parse_event(line)) is not None:
                    click.echo(line.decode("utf-8", "replace") if as_json else sentence(event))
            if not follow:
                return
            time.sleep(_LOOK_AGAIN_S)
    except OSError as error:
        fail(f"{path} can't be read: {error.strerror}")


def sentence(event: Event) -> str:
    """One event as a line for a person; the time is local."""
    at = datetime.fromtimestamp(event.time).astimezone()
    return f"{at:%Y-%m-%d %H:%M:%S}  {event.reason:<22}  {event.message}"
