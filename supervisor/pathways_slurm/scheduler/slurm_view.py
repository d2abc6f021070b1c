# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Tasks, from squeue's rows and from what a service has noted itself.

Slurm keeps no record of a task that was cancelled before it first started, and one exit code of
all hosts of a task that failed. Both are told from the service's own files.
"""

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from pathways_slurm.scheduler.base import Node, SchedulerUnavailable, Task
from pathways_slurm.scheduler.slurm_ends import HostEnd, ended_for, first_end
from pathways_slurm.scheduler.slurm_intents import Intent
from pathways_slurm.scheduler.slurm_options import JOB_NAME_PREFIX, job_name
from pathways_slurm.scheduler.slurm_parse import Row, parse_comment, task_of
from pathways_slurm.scheduler.slurm_submission import Submissions
from pathways_slurm.states import TaskState

# A task may start, end and be forgotten between two looks that are further apart.
_RECENT_S = 60.0
# srun writes a few lines a run.
_LOG_TAIL = 64 * 1024


def never_ran(row: Row) -> bool:
    """A task that Slurm forgets when it is cancelled."""
    return row.state in (TaskState.PENDING, TaskState.HELD) and row.restarts == 0


class TaskView:
    """What one scheduler object knows of the tasks of its service."""

    def __init__(self, submissions: Submissions) -> None:
        self._submissions = submissions
        self._intents: dict[str, Intent] = {}
        self._ends: dict[tuple[str, float], HostEnd] = {}
        self._ended_for: dict[str, tuple[int, str]] = {}
        self._waiting: dict[tuple[str, int], float] = {}

    def intent(self, array: str) -> Intent | None:
        """The submission that made this array, if it is known. Raises SchedulerUnavailable."""
        if array not in self._intents:
            self._intents |= self._submissions.by_array()
        return self._intents.get(array)

    def is_ours(self, row: Row) -> bool:
        """Whether a row is of a service's array: an id alone may be that of a later job."""
        intent = self.intent(row.array)
        if intent is None:
            return row.name.startswith(JOB_NAME_PREFIX)
        return row.name == job_name(intent.tag)

    def task(self, row: Row, index: int, nodes: tuple[Node, ...]) -> Task:
        """The task of a row."""
        intent = self.intent(row.array)
        said = parse_comment(row.comment)
        first = 1
        if intent is not None:
            first = intent.first_incarnation
        elif said is not None:
            first = said[1]
        end = self._end(row, index, first, intent)
        return task_of(row, index, nodes, first, end, self._why(row, index, first, intent))

    def absent(self, array: str, rows: Sequence[Row], now: float) -> list[Task]:
        """Tasks of an array that were cancelled before they first started.

        Args:
            array: Its id.
            rows: All that Slurm lists of it.
            now: Unix time.
        """
        intent = self.intent(array)
        if intent is None:
            return []
        listed = {row.index for row in rows}
        missing = [index for index in intent.indices if index not in listed]
        if missing:
            vanished = self._vanished(array, rows, missing, now)
            intent = self._withdraw(array, vanished, now) or intent
        for row in rows:
            if row.index is not None and never_ran(row):
                self._waiting[array, row.index] = now
            elif row.index is not None:
                self._waiting.pop((array, row.index), None)
        return [
            Task(
                id=f"{array}_{index}",
                index=index,
                state=TaskState.CANCELLED,
                reason="cancelled before it started",
                incarnation=intent.first_incarnation,
                since=since,
            )
            for index, since in intent.withdrawn
            if index in missing
        ]

    def withdraw(self, cancelled: Mapping[str, Sequence[int]], timeout_s: float) -> None:
        """Notes tasks that were cancelled before they first started, by array.

        Raises:
            SchedulerUnavailable: It could not be noted.
        """
        for array, indices in cancelled.items():
            self._submissions.withdraw(array, indices, time.time(), timeout_s)

    def _vanished(
        self, array: str, rows: Sequence[Row], missing: Sequence[int], now: float
    ) -> list[int]:
        """Those of ``missing`` that a cancellation has removed: nothing else removes them alone."""
        if any(row.index is None and row.state is TaskState.CANCELLED for row in rows):
            return list(missing)
        if not rows:
            return []  # the whole array is gone, and with it what was asked for
        since = now - _RECENT_S
        return [index for index in missing if self._waiting.get((array, index), 0.0) >= since]

    def _withdraw(self, array: str, vanished: Sequence[int], now: float) -> Intent | None:
        # Another process may have noted some.
        self._intents |= self._submissions.by_array()
        intent = self._intents.get(array)
        if intent is not None and set(vanished) - dict(intent.withdrawn).keys():
            intent = intent.with_withdrawn(vanished, now)
            with contextlib.suppress(SchedulerUnavailable):  # the next look notes it
                self._submissions.withdraw(array, vanished, now, 0.0)
        return intent

    def _end(self, row: Row, index: int, first: int, intent: Intent | None) -> HostEnd | None:
        key = (row.id, row.started)
        if row.state is TaskState.FAILED and intent is not None and key not in self._ends:
            log = _batch_log(intent, index)
            if (end := first_end(log, first + row.restarts)) is not None:
                self._ends[key] = end
        return self._ends.get(key) if row.state is TaskState.FAILED else None

    def _why(self, row: Row, index: int, first: int, intent: Intent | None) -> str:
        """Why Slurm itself ended the last run, or is ending this one; "" if that is not known."""
        waits = row.state in (TaskState.PENDING, TaskState.HELD)
        run = first + row.restarts - waits
        over = waits or row.state.ended or row.state is TaskState.COMPLETING
        if intent is None or not over or run < first:
            return ""
        known, why = self._ended_for.get(row.id, (0, ""))
        if known != run:
            why = ended_for(_batch_log(intent, index), run)
            if why:
                self._ended_for[row.id] = run, why
        return why


def _batch_log(intent: Intent, index: int) -> str:
    return _tail(Path(intent.log_dir) / f"slice-{index}" / "batch.log")


def _tail(path: Path) -> str:
    """The end of a log, "" if it can't be read: then Slurm's own word must do."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _LOG_TAIL))
            return file.read().decode(errors="replace")
    except OSError:
        return ""
