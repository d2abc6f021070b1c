# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Shows a service's events as they are written, with the seconds since this command began."""

import time
from pathlib import Path

import click

from pathways_slurm.events import parse_event


class Timeline:
    """Follows an event log from its present end on."""

    def __init__(self, events: Path) -> None:
        self._path = events
        self._began = time.time()
        self._offset = events.stat().st_size if events.exists() else 0
        self._rest = b""

    def say(self, words: str) -> None:
        """Prints one line of this command's own."""
        click.echo(f"[{time.time() - self._began:7.1f} s] {words}")

    def show_new(self) -> None:
        """Prints the events that have come since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except OSError:
            # What is shown must never decide what is done.
            return
        self._offset += len(data)
        # A line that is being written now is shown the next time.
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if (event := parse_event(line)) is not None:
                click.echo(f"[{event.time - self._began:7.1f} s] {event.message}")
