# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The resource manager's ends of the two files between it and a supervisor.

Neither may hold it up or end it: what can't be written is tried again, and what can't be read is
as if it were not there. Both block while the disk does; call them from a thread.
"""

import logging
from pathlib import Path

from pathways_slurm import runtime_files
from pathways_slurm.runtime_files import Orders, Report, RuntimeFileError

_log = logging.getLogger(__name__)


class ReportFile:
    """Keeps a report on disk."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written: Report | None = None
        self._complained = False

    def keep(self, report: Report) -> bool:
        """Writes the report unless it is there; False if that failed and must be tried again."""
        if report == self._written:
            return True
        try:
            report.write(self._path)
        except OSError as error:
            if not self._complained:
                _log.error("cannot write the report %s, trying on: %s", self._path, error)
                self._complained = True
            return False
        if self._complained:
            _log.info("the report %s can be written again", self._path)
            self._complained = False
        self._written = report
        return True


class OrdersFile:
    """Reads orders whenever they were written anew."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: tuple[int, int, int] | None = None

    def news(self) -> Orders | None:
        """The orders, if they were written since they were read last.

        A file that has gone takes back nothing: not to see it is no order.
        """
        # Before reading: what is written meanwhile is read the next time.
        stamp = runtime_files.stamp(self._path)
        if stamp is None or stamp == self._stamp:
            return None
        self._stamp = stamp
        try:
            return Orders.read(self._path)
        except (OSError, RuntimeFileError) as error:
            _log.error("ignoring the orders until they are written anew: %s", error)
            return None
