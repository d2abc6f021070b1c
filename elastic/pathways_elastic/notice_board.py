# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What the service announces of its slices, at hand whenever the training loop looks.

A thread reads notices.json, so that looking costs the loop an attribute and no file.
"""

import logging
import threading
from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path

from pathways_slurm import notices
from pathways_slurm.notices import Back, Going, Notices
from pathways_slurm.paths import ServicePaths

_log = logging.getLogger("pathways_elastic")

# A small file is opened and read: some 50 microseconds of a processor.
_LOOK_S = 0.1

_CLUSTER_ENV_VARIABLE = "PATHWAYS_CLUSTER_ENV"
_HOME_VARIABLE = "PATHWAYS_HOME"
_RUN_ID_VARIABLE = "PATHWAYS_RUN_ID"
_ON_NOTICE_VARIABLE = "PATHWAYS_ON_NOTICE"


@dataclass(frozen=True, slots=True)
class Source:
    """Where the announcements are.

    Attributes:
        path: Of notices.json; None if there is none, as of a runtime without a service.
        run_id: Of the service's run; what another run has announced is of no interest. None: any.
        forwards: Whether programs must leave slices at a notice. If not, the service looks after
            their data.
    """

    path: Path | None
    run_id: str | None
    forwards: bool

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "Source":
        """That of the service whose cluster.env has been read into ``environment``.

        Raises:
            ValueError: The variables name no service; that is none whose cluster.env was read.
        """
        path = None
        if cluster_env := environment.get(_CLUSTER_ENV_VARIABLE):
            path = Path(cluster_env).with_name(notices.FILE)
        elif environment.get(_HOME_VARIABLE):
            path = ServicePaths.from_environ(environment).notices
        forwards = environment.get(_ON_NOTICE_VARIABLE) == "forward"
        return cls(path, environment.get(_RUN_ID_VARIABLE), forwards)


class NoticeBoard:
    """The announcements as they are now, give or take a tenth of a second.

    Args:
        source: Where they are.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._answered: set[tuple[int, int]] = set()
        self._complaint = ""
        self._closed = threading.Event()
        # Each is replaced in one assignment by the thread.
        self._going: Mapping[int, Going] = {}
        self._back: Mapping[int, Back] = {}
        self._ends: str | None = None
        self._thread: threading.Thread | None = None
        if source.path is not None:
            self._look(source.path)
            self._thread = threading.Thread(
                target=self._follow, args=(source.path,), name="elastic-notices", daemon=True
            )
            self._thread.start()

    @property
    def going(self) -> Mapping[int, Going]:
        """The slices that are about to go, and that programs must leave; by index."""
        return self._going

    @property
    def back(self) -> Mapping[int, Back]:
        """The slices that had gone and can be used again, as far as the service knows; by index."""
        return self._back

    @property
    def ends(self) -> str | None:
        """Why the service ends, if it does: no slice comes back then."""
        return self._ends

    def acknowledge(self, unused: Set[int]) -> list[Going]:
        """Tells the service of those of ``unused`` slices that are about to go; once of each.

        Returns:
            Those that it was told of. If that is not possible, it is logged and tried again at the
            next call: the slice then stays until its time is over.
        """
        told = []
        for going in self._going.values():
            run = going.slice, going.incarnation
            if going.slice not in unused or run in self._answered or self._source.path is None:
                continue
            try:
                notices.acknowledge(self._source.path.with_name(notices.DIRECTORY), *run)
            except OSError as error:
                _log.warning("slice %d could not be let go early: %s", going.slice, error)
                continue
            self._answered.add(run)
            told.append(going)
        return told

    def close(self) -> None:
        """Follows the file no more."""
        self._closed.set()
        if self._thread is not None:
            # A file system that does not answer must not hold this up.
            self._thread.join(1.0)
            self._thread = None

    def _follow(self, path: Path) -> None:
        while not self._closed.wait(_LOOK_S):
            self._look(path)

    def _look(self, path: Path) -> None:
        try:
            found = notices.read(path)
        except FileNotFoundError:
            found = Notices("")
        except (OSError, notices.NoticesError) as error:
            # What was read last still holds.
            if self._complaint != (words := str(error)):
                self._complaint = words
                _log.warning("what the service announces can't be read: %s", words)
            return
        if self._source.run_id not in (None, found.run_id):
            found = Notices("")
        self._ends = found.shutdown.reason if found.shutdown else None
        self._back = {back.slice: back for back in found.back}
        if self._source.forwards:
            self._going = {going.slice: going for going in found.going}
