# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""An array's directory: the one place where the local scheduler keeps anything.

::

    spec.json             the request; its directory is renamed into place with everything below
    lock                  held for each step that reads and then writes
    runner.log            every decision, and what the runners print
    tasks/I/intent.json   what was ordered of the task
    tasks/I/run.json      its last run
    tasks/I/run.lock      held by the task's runner, which keeps its identity in it
"""

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pathways_slurm.files import make_private_dir, write_atomic
from pathways_slurm.locks import locked, try_lock
from pathways_slurm.processes import ProcessIdentity
from pathways_slurm.scheduler.local_records import Intent, Record, RunState, Spec

LOCK_TIMEOUT_S = 5.0


class CorruptRecordError(Exception):
    """A file of an array does not hold what we write there."""


class RunnerSlot(NamedTuple):
    """The right to be a task's runner: a descriptor that holds its run lock."""

    descriptor: int


class ArrayStore:
    """Reads and writes the files of one array.

    Every method may raise OSError; those that read, CorruptRecordError.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @property
    def array_id(self) -> str:
        return self.directory.name

    @contextlib.contextmanager
    def locked(self, timeout_s: float = LOCK_TIMEOUT_S) -> Iterator[None]:
        """Makes what happens inside one step for all others. Raises TimeoutError."""
        with locked(self.directory / "lock", timeout_s):
            yield

    def write_spec(self, spec: Spec) -> None:
        write_atomic(self.directory / "spec.json", json.dumps(spec.to_json(), indent=1) + "\n")

    def spec(self) -> Spec:
        return _read(self.directory / "spec.json", Spec.from_json)

    def write_intent(self, index: int, intent: Intent) -> None:
        write_atomic(self._task(index) / "intent.json", json.dumps(intent._asdict()) + "\n")

    def intent(self, index: int) -> Intent:
        return _read(self._task(index) / "intent.json", lambda fields: Intent(**fields))

    def write_run(self, index: int, run: RunState) -> None:
        write_atomic(self._task(index) / "run.json", json.dumps(run.to_json()) + "\n")

    def run(self, index: int) -> RunState | None:
        """The last run, or None if there was none."""
        path = self._task(index) / "run.json"
        try:
            return _read(path, RunState.from_json)
        except FileNotFoundError:
            return None

    def record(self, index: int) -> Record:
        """All of a task. Consistent only while the array is locked."""
        slot = self.take_slot(index)
        if slot is not None:
            os.close(slot.descriptor)
        return Record(self.intent(index), self.run(index), runner_lives=slot is None)

    def take_slot(self, index: int) -> RunnerSlot | None:
        """The task's run lock, or None if a runner holds it. Only while the array is locked."""
        descriptor = try_lock(self._run_lock(index))
        return None if descriptor is None else RunnerSlot(descriptor)

    def write_runner(self, slot: RunnerSlot, runner: ProcessIdentity) -> None:
        """Records who holds the run lock, in the lock's own file."""
        os.ftruncate(slot.descriptor, 0)
        os.pwrite(slot.descriptor, json.dumps(runner).encode() + b"\n", 0)

    def runner(self, index: int) -> ProcessIdentity | None:
        """Who last held the run lock; None before the first runner is up."""
        path = self._run_lock(index)
        if not path.stat().st_size:
            return None
        return _read(path, lambda fields: ProcessIdentity(*fields))

    def log(self, line: str) -> None:
        """Appends a decision to runner.log. A full disk stops no decision."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        with contextlib.suppress(OSError):
            descriptor = self.open_log()
            try:
                os.write(descriptor, f"{stamp} {line}\n".encode())
            finally:
                os.close(descriptor)

    def open_log(self) -> int:
        """A descriptor that appends to runner.log."""
        path = self.directory / "runner.log"
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def make_task(self, index: int, intent: Intent) -> None:
        """Creates the files of a task that is to run."""
        make_private_dir(self._task(index))
        self.write_intent(index, intent)

    def _task(self, index: int) -> Path:
        return self.directory / "tasks" / str(index)

    def _run_lock(self, index: int) -> Path:
        return self._task(index) / "run.lock"


def _read[T](path: Path, parse: Callable[[Any], T]) -> T:
    text = path.read_text(encoding="utf-8")
    try:
        return parse(json.loads(text))
    except (ValueError, TypeError, KeyError) as fault:
        raise CorruptRecordError(f"{path} does not hold what belongs there: {fault!r}") from fault
