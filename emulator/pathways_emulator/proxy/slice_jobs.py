# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What takes long when a slice is suspended or comes back: for all sessions, without any lock."""

import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

from pathways_emulator.proxy import suspension
from pathways_emulator.proxy.arrays import Array, Away
from pathways_emulator.proxy.executor import Executor, Value
from pathways_emulator.proxy.scratch import Scratch
from pathways_emulator.proxy.session import Session
from pathways_emulator.proxy.shard_file import DamagedError, ShardFile
from pathways_emulator.proxy.status import harmless
from pathways_emulator.proxy.suspension import Outgoing, UnsavedError

# How often a wait for computations looks whether it still makes sense.
_LOOK_S = 0.05


@dataclass(frozen=True, slots=True)
class Saved:
    """What one session has in a file, and what it can do without in memory."""

    outgoing: Outgoing
    file: ShardFile


@dataclass(frozen=True, slots=True)
class SliceJobs:
    """Saves and loads the data of one slice.

    Attributes:
        index: Of the slice.
        devices: Of the slice.
        executor: Has the data.
        scratch: Where it is kept.
    """

    index: int
    devices: Collection[int]
    executor: Executor
    scratch: Scratch

    def folder(self, incarnation: int) -> str:
        """Where the files of a suspended incarnation are, in the scratch location."""
        return f"slice-{self.index}-incarnation-{incarnation}"

    def save(
        self,
        incarnation: int,
        sessions: Sequence[Session],
        deadline_s: float,
        check: Callable[[], None],
    ) -> dict[Session, Saved]:
        """Lets computations end, and writes what sessions have on the slice.

        Nothing may begin to use the slice any more.

        Args:
            incarnation: Of the slice.
            sessions: Those that have anything to be kept.
            deadline_s: Of the monotonic clock.
            check: Called often; what it raises ends the work.

        Raises:
            UnsavedError: A request did not end in time, or some data could not be restored.
            Exception: The scratch location can't be written, or what ``check`` raises.
        """
        _quiesce(sessions, deadline_s)
        arrays = {session: session.arrays.needing(self.index) for session in sessions}
        values = list(_values(chain.from_iterable(arrays.values())))
        executions = self.executor.under_way(self.devices)
        self._drain([*executions, *values], check)
        del values, executions  # or they would stay in memory until all is written
        _quiesce(sessions, deadline_s)
        result = {}
        for session in sessions:
            outgoing = suspension.survey(
                arrays.pop(session), self.index, self.devices, self.executor
            )
            if outgoing.pieces:
                about = {
                    "slice": self.index,
                    "incarnation": incarnation,
                    "session": session.id,
                }
                name = f"{self.folder(incarnation)}/session-{session.id}"
                file = suspension.save(outgoing, self.scratch, name, about, check)
                result[session] = Saved(outgoing, file)
        return result

    def load(
        self, session: Session, file: ShardFile, check: Callable[[], None]
    ) -> dict[Away, Value]:
        """Reads what a session still needs of its file.

        Raises:
            DamagedError: The file is gone, or not as it was written.
            Exception: What ``check`` raises.
        """
        try:
            return suspension.load(
                session.arrays.needing(self.index),
                self.index,
                self.scratch,
                file,
                self.executor,
                check,
            )
        except DamagedError as error:
            place = self.scratch.place(file.name)
            raise DamagedError(f"its saved data {place} is damaged: {error}") from error

    def why(self, error: Exception) -> str:
        """An error of :meth:`save` for a human."""
        if isinstance(error, UnsavedError):
            return str(error)
        place = self.scratch.place("")
        if isinstance(error, OSError) and error.strerror:
            return f"{error.filename or place}: {error.strerror}"
        return harmless(f"{place}: {type(error).__name__}: {error}")

    def _drain(self, values: Sequence[Value], check: Callable[[], None]) -> None:
        done = threading.Event()

        def wait() -> None:
            for value in values:
                suspension.wait_for_end(value, self.executor)
            done.set()

        # Of its own, as it may have to be left behind in the middle of a computation.
        threading.Thread(target=wait, name=f"drain-{self.index}", daemon=True).start()
        while not done.wait(_LOOK_S):
            check()
        check()


def _quiesce(sessions: Iterable[Session], deadline_s: float) -> None:
    for session in sessions:
        if not session.quiesce(deadline_s - time.monotonic()):
            raise UnsavedError("a request that was being served did not end in time")


def _values(arrays: Iterable[Array]) -> Iterable[Value]:
    for array in arrays:
        value = array.value
        if value is not None:
            yield value
        yield from (part for part in array.parts or () if not isinstance(part, Away))
