# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""``pathways-slurm logs``."""

import time
from collections.abc import Iterable
from pathlib import Path

import click

from pathways_slurm.cli.common import fail, service_paths
from pathways_slurm.cli.tail import Tail

_LOOK_AGAIN_S = 0.2
_PARTS = ("supervisor", "rm", "proxy")


@click.command(name="logs")
@click.option("-f", "--follow", is_flag=True, help="Go on with new lines, and new files.")
@click.option(
    "-n",
    "--lines",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    help="Of each file, begin with the last N.",
)
@click.argument("parts", metavar="[PART]...", nargs=-1)
def command(follow: bool, lines: int, parts: tuple[str, ...]) -> None:
    """Show what the service's processes have written.

    PART is a slice index, supervisor, rm or proxy; without any, all are shown. Every line is
    preceded by the name of its file if there are several.

    \b
    Examples:
      pathways-slurm logs 1               every host of slice 1
      pathways-slurm logs --follow proxy
    """
    directory = service_paths().logs
    faults = [
        f"{part!r} is no part of a service; valid: a slice index, {', '.join(_PARTS)}"
        for part in parts
        if part not in _PARTS and not part.isdecimal()
    ]
    if faults:
        raise click.UsageError("; ".join(faults))
    if not directory.is_dir() and not follow:
        fail(f"there are no logs yet: no service was ever started in {directory.parent}")
    known: dict[Path, Tail] = {}
    while True:
        for path in _files(directory, parts):
            known.setdefault(path, Tail(path, lines))
        if not known and not follow:
            wanted = ", ".join(parts) or "any part"
            fail(f"{directory} has no log of {wanted} yet")
        several = len(known) > 1 or (follow and not parts)
        for path, tail in known.items():
            _print(path.relative_to(directory), tail, several)
        if not follow:
            return
        time.sleep(_LOOK_AGAIN_S)


def _print(name: Path, tail: Tail, several: bool) -> None:
    prefix = f"{name.with_suffix('')}  " if several else ""
    try:
        for line in tail.lines():
            click.echo(f"{prefix}{line.decode('utf-8', 'replace')}")
    except OSError as error:
        fail(f"{tail.path} can't be read: {error.strerror}")


def _files(directory: Path, parts: Iterable[str]) -> list[Path]:
    """The log files of these parts, or of all; those of a slice are in a directory of their own."""
    found: list[Path] = []
    for part in list(parts) or [*_PARTS, "*"]:
        pattern = f"{part}.log" if part in _PARTS else f"slice-{part}/*.log"
        found += sorted(directory.glob(pattern))
    return found
