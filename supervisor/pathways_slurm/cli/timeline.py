# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Shows a service's events as they are written, with the seconds since this command began."""

import time
from pathlib import Path

import click

from pathways_slurm.cli.tail import Tail
from pathways_slurm.events import parse_event


class Timeline:
    """Follows an event log from its present end on."""

    def __init__(self, events: Path) -> None:
        self._began = time.time()
        self._tail = Tail(events, last=0)

    def say(self, words: str) -> None:
        """Prints one line of this command's own."""
        click.echo(f"[{time.time() - self._began:7.1f} s] {words}")

    def show_new(self) -> None:
        """Prints the events that have come since the last call."""
        try:
            lines = self._tail.lines()
        except OSError:
            # What is shown must never decide what is done.
            return
        for line in lines:
            if (event := parse_event(line)) is not None:
                click.echo(f"[{event.time - self._began:7.1f} s] {event.message}")
