# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Turns a service's notices into signals, for a program that does not read them itself."""

import signal
from collections.abc import Callable
from pathlib import Path

from pathways_slurm import notices


class NoticeWatch:
    """Follows a notices file from its present content on."""

    def __init__(self, path: Path, number: signal.Signals, warn: Callable[[str], None]) -> None:
        """What the file holds already is known, and no reason for a signal.

        Args:
            path: Of the file; it need not exist, and may come and go.
            number: The signal.
            warn: Is told why the file can't be used, once for each reason.
        """
        self._path = path
        self._number = number
        self._warn = warn
        self._warned = ""
        self._known: set[tuple[str, int, int]] = set()
        self.prompts()

    def prompts(self) -> tuple[signal.Signals, ...]:
        """The signals that are due: one if anything is new since the last call."""
        # Read each time, though it seldom changes: on a network file system it is the opening of a
        # file that shows at once what another machine has written.
        try:
            found = notices.read(self._path)
        except FileNotFoundError:
            return ()
        except (OSError, notices.NoticesError) as error:
            if self._warned != (words := str(error)):
                self._warned = words
                self._warn(f"no signal will come of notices: {words}")
            return ()
        entries = _entries(found)
        new = entries - self._known
        self._known |= new
        return (self._number,) if new else ()


def _entries(found: notices.Notices) -> set[tuple[str, int, int]]:
    """What each signal is about: a run of a slice, or (-1) all of the service's run."""
    entries = {(found.run_id, going.slice, going.incarnation) for going in found.going}
    return entries | ({(found.run_id, -1, 0)} if found.shutdown else set())
