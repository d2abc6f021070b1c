# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What the contract suite needs of a scheduler under test."""

import contextlib
import itertools
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pathways_slurm.processes import ProcessIdentity, identify, is_alive
from pathways_slurm.scheduler.base import ArraySpec, Scheduler, Task
from pathways_slurm.states import TaskState

ROOT = Path(__file__).parents[2]
WORKER = Path(__file__).with_name("worker.py")
_NUMBERS = itertools.count()


def wait_until[T](look: Callable[[], T], timeout_s: float, what: str) -> T:
    """The first true value that ``look`` returns; fails the test after ``timeout_s``."""
    deadline = time.monotonic() + timeout_s
    while not (value := look()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s:g} s: {what}; last seen: {value!r}")
        time.sleep(0.005)
    return value


@dataclass(frozen=True)
class Report:
    """What one worker process wrote at its start."""

    slice: int
    host: int
    incarnation: int
    pid: int
    children: tuple[int, ...]
    env: dict[str, str]
    argv: tuple[str, ...]
    stdin: str
    is_session_leader: bool


class SchedulerHarness(ABC):
    """A scheduler under test, whose tasks run on this machine.

    Attributes:
        directory: Of this test alone.
        patience_s: How long anything this scheduler does may take.
        kill_wait_s: From SIGTERM to SIGKILL at a task's end.
    """

    patience_s: float
    kill_wait_s: float

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.reports_dir = directory / "reports"
        self.reports_dir.mkdir()
        self.log_dir = directory / "logs"
        self.tags: list[str] = []
        self._identities: dict[int, ProcessIdentity | None] = {}

    @abstractmethod
    def factory(self) -> Callable[[], Scheduler]:
        """Picklable; makes a new scheduler object over the same scheduler."""

    @abstractmethod
    def delayed_factory(self) -> Callable[[], Scheduler]:
        """As ``factory``, but a requeued task waits (BeginTime) for longer than any test."""

    def scheduler(self) -> Scheduler:
        return self.factory()()

    def spec(
        self,
        *,
        slices: int = 1,
        hosts: int = 1,
        mode: str = "wait",
        tag: str = "",
        first_incarnation: int = 1,
    ) -> ArraySpec:
        tag = tag or f"test-{os.getpid()}-{next(_NUMBERS)}"
        self.tags.append(tag)
        return ArraySpec(
            tag=tag,
            indices=tuple(range(slices)),
            hosts_per_task=hosts,
            argv=(sys.executable, "-S", str(WORKER), "an argument", ""),
            env={"WORKER_REPORTS": str(self.reports_dir), "WORKER_MODE": mode, "A B": "c=d,\n"},
            first_incarnation=first_incarnation,
            log_dir=self.log_dir,
        )

    def until[T](self, look: Callable[[], T], what: str) -> T:
        return wait_until(look, self.patience_s, what)

    def holds(self, look: Callable[[], bool], seconds: float) -> None:
        """Fails the test as soon as ``look`` is not true within that time."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            assert look()
            time.sleep(0.02)

    def running(self, array_id: str) -> dict[int, Task]:
        """The array's tasks by index, once every host of all of them runs and has reported.

        Reports do not name their array: arrays of one test must differ in their indices.
        """
        scheduler = self.scheduler()

        def look() -> dict[int, Task]:
            tasks = scheduler.tasks([array_id])
            ready = all(
                task.state is TaskState.RUNNING
                and len(self.live(task.index, task.incarnation)) == len(task.nodes)
                for task in tasks
            )
            return {task.index: task for task in tasks} if ready else {}

        return self.until(look, f"array {array_id} runs on all hosts")

    def task(self, task_id: str) -> Task:
        array_id = task_id.rpartition("_")[0]
        (task,) = [t for t in self.scheduler().tasks([array_id]) if t.id == task_id]
        return task

    def ended(self, task_id: str) -> Task:
        """The task once it has ended."""

        def look() -> Task | None:
            task = self.task(task_id)
            return task if task.state.ended else None

        task = self.until(look, f"task {task_id} ends")
        assert task is not None
        return task

    def rerun(self, task_id: str, incarnation: int) -> Task:
        """The task once it runs with this incarnation on all its hosts."""

        def look() -> Task | None:
            task = self.task(task_id)
            hosts = len(self.live(task.index, incarnation))
            ready = task.state is TaskState.RUNNING and task.incarnation == incarnation
            return task if ready and hosts == len(task.nodes) else None

        task = self.until(look, f"task {task_id} runs as incarnation {incarnation}")
        assert task is not None
        return task

    def reports(self) -> list[Report]:
        """All reports, of dead workers too, by slice, host and incarnation."""
        found = []
        for path in self.reports_dir.glob("*.json"):
            fields = json.loads(path.read_text())
            fields |= {key: tuple(fields[key]) for key in ("children", "argv")}
            found.append(Report(**fields))
            for pid in (found[-1].pid, *found[-1].children):
                # Noted early, so that the pid's next owner is not taken for it.
                self._identities.setdefault(pid, identify(pid))
        return sorted(found, key=lambda report: (report.slice, report.host, report.incarnation))

    def live(self, index: int, incarnation: int | None = None) -> list[Report]:
        """Workers of a slice that live now."""
        return [
            report
            for report in self.reports()
            if report.slice == index
            and incarnation in (None, report.incarnation)
            and self.lives(report.pid)
        ]

    def lives(self, pid: int) -> bool:
        """Whether a process from a report lives."""
        identity = self._identities.get(pid)
        return identity is not None and is_alive(identity)

    def signal_host(self, index: int, host: int, number: signal.Signals) -> None:
        """SIGKILL kills the newest worker of a host; SIGUSR1 has it exit 0, SIGUSR2 exit 3."""
        newest = [r for r in self.live(index) if r.host == host][-1]
        os.kill(newest.pid, number)

    def noted(self, index: int, number: signal.Signals) -> list[int]:
        """How often the signal came to each live worker of a slice that runs in mode "note"."""
        files = [
            self.reports_dir / f"{r.slice}.{r.host}.{r.pid}.{number.name}" for r in self.live(index)
        ]
        return [len(path.read_text().splitlines()) if path.exists() else 0 for path in files]

    def survivors(self) -> list[int]:
        """Processes of the test that live."""
        pids = {pid for report in self.reports() for pid in (report.pid, *report.children)}
        return [pid for pid in pids if self.lives(pid)]

    def elsewhere(
        self, verb: str, *arguments: object, die: bool = False
    ) -> subprocess.Popen[bytes]:
        """Makes a call in a process of its own; ``result`` has what it returned."""
        call = self.directory / f"call-{next(_NUMBERS)}"
        call.write_bytes(pickle.dumps((self.factory(), verb, arguments)))
        with call.open("rb") as file:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.contract.elsewhere", *(["die"] if die else [])],
                stdin=file,
                stdout=subprocess.PIPE,
                cwd=ROOT,
            )

    def result(self, process: subprocess.Popen[bytes]) -> Any:
        """What the call returned; its exception is raised."""
        output, _ = process.communicate(timeout=self.patience_s)
        value = pickle.loads(output)
        if isinstance(value, Exception):
            raise value
        return value

    def close(self) -> None:
        """Ends what the test started, and fails if a process does not end."""
        scheduler = self.scheduler()
        arrays = [array for tag in self.tags if (array := scheduler.find(tag)) is not None]
        tasks = scheduler.tasks(arrays)
        scheduler.cancel([task.id for task in tasks])
        # Whatever ignores SIGTERM: a scheduler may leave it many seconds. Of tasks that ran only:
        # what else is left of the test must have ended by itself.
        for report in (r for task in tasks for r in self.live(task.index, task.incarnation)):
            for pid in filter(self.lives, (report.pid, *report.children)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.until(
            lambda: all(task.state.ended for task in scheduler.tasks(arrays)),
            "all tasks of the test end",
        )
        self.until(lambda: not self.survivors(), "no process of the test is left")
