# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""``pathways-slurm status``."""

import json
import sys
import time
from typing import Any

import click

from pathways_slurm.cli.common import EXIT_OK, fail, service_paths

EXIT_NOT_READY = 4


@click.command(name="status")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(as_json: bool) -> None:
    """Show the service and its slices.

    Exit codes: 0 if the service is ready, 4 if it is not.
    """
    from pathways_slurm.states import ServicePhase
    from pathways_slurm.status import read_status

    paths = service_paths()
    try:
        status = read_status(paths)
    except (OSError, ValueError) as error:
        fail(f"{paths.status} can't be read: {error}")
    if as_json:
        click.echo(json.dumps(status, indent=1))
    else:
        _show(status)
    sys.exit(EXIT_OK if status["service"] == ServicePhase.READY else EXIT_NOT_READY)


def _show(status: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    # A pipe has no width; its reader wants whole lines.
    console = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 200)
    console.print(f"service  [bold]{status['service']}[/bold]  {status['reason']}")
    for component, title in (("rm", "resource manager"), ("proxy", "IFRT proxy")):
        if component in status:
            part = status[component]
            console.print(f"{title}  {part['state']}  {part['address']}  {part['reason']}")
    if not status["slices"]:
        return
    table = Table(
        "slice", "state", "for", "incarnation", "nodes", "reason", box=None, pad_edge=False
    )
    for item in status["slices"]:
        table.add_row(
            str(item["index"]),
            item["state"],
            _age(item["since"]),
            str(item["incarnation"] or "-"),
            ", ".join(item["nodes"]) or "-",
            item["reason"],
        )
    console.print(table)


def _age(since: float) -> str:
    if not since:
        return "-"
    seconds = max(0, int(time.time() - since))
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{seconds:02}s"
