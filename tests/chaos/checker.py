# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Watches a service from outside and says which invariant it breaks.

It sees /proc, squeue, files and TCP, and imports nothing of the project; a test enforces it.
"""

import subprocess
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos import sightings
from tests.chaos.judging import Bounds, Causes, Violation
from tests.chaos.rules import all_rules
from tests.chaos.sightings import LineReader, Sighting, Task

_LOOK_EVERY_S = 0.5
# For a command that hangs, as long as the service's own.
_SQUEUE_S = 5.0
# A squeue that has not answered by then counts as none.
_SLOW_S = 2.5
_COLUMNS = "ArrayJobID:0|,ArrayTaskID:0|,State:0|,RestartCnt:0|,Name:0|"


@dataclass(frozen=True)
class Subject:
    """The service that is watched.

    Attributes:
        home: Its PATHWAYS_HOME; a path that no other process has in argv or environment.
        known_reasons: The words that may be reasons in events.jsonl.
        exempt: Variable of processes that name the home but are none of the service.
        slurm: Environment in which squeue works; None for a service without Slurm.
        user: Whose jobs the service's are; None: this process's user's.
    """

    home: Path
    known_reasons: frozenset[str]
    exempt: str
    slurm: Mapping[str, str] | None = None
    user: str | None = None
    bounds: Bounds = field(default_factory=Bounds)


class _Queue:
    """Asks squeue again and again, in a thread of its own: it may hang."""

    def __init__(self, environment: Mapping[str, str], user: str | None) -> None:
        self._environment = environment
        self._whose = ["--me"] if user is None else [f"--user={user}"]
        self._asked = time.monotonic()
        self._rows: tuple[Task, ...] | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="squeue", daemon=True)
        self._thread.start()

    def tasks(self) -> tuple[Task, ...] | None:
        """The array tasks; None if there is no answer just now."""
        if time.monotonic() - self._asked > _SLOW_S:
            return None
        return self._rows

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._asked = time.monotonic()
            self._rows = self._ask()
            self._stop.wait(_LOOK_EVERY_S)

    def _ask(self) -> tuple[Task, ...] | None:
        try:
            done = subprocess.run(
                ["squeue", "-h", "-r", "-t", "all", *self._whose, "-O", _COLUMNS],
                env=dict(self._environment),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=True,
                timeout=_SQUEUE_S,
            )
        except (subprocess.SubprocessError, OSError):
            return None
        return parse_squeue(done.stdout)


def parse_squeue(text: str) -> tuple[Task, ...]:
    """The array tasks in squeue's output; other jobs have no index."""
    rows = (line.split("|", 4) for line in text.splitlines())
    return tuple(
        Task(array, int(index), name.rstrip("|"), state, int(restarts))
        for array, index, state, restarts, name in rows
        if index.isdigit()
    )


class Checker:
    """Looks at a service twice a second, until it is closed.

    Attributes:
        causes: What was done to slices; to be told by whoever does it.
    """

    def __init__(self, subject: Subject) -> None:
        self.causes = Causes()
        self._subject = subject
        self._rules = all_rules(subject.bounds, self.causes, subject.known_reasons)
        self._events = LineReader(subject.home / "events.jsonl")
        self._queue = None if subject.slurm is None else _Queue(subject.slurm, subject.user)
        self._runs: set[str] = set()
        self._lock = threading.Lock()
        self._violations: list[Violation] = []
        self._latest = Sighting(0.0)
        self._error: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="checker", daemon=True)

    def start(self) -> None:
        """Begins to watch."""
        self._thread.start()

    def close(self) -> None:
        """Ends watching. Raises what made it end before, if anything did."""
        self._stop.set()
        self._thread.join()
        if self._queue is not None:
            self._queue.close()
        if self._error is not None:
            raise RuntimeError("the checker has failed, so what it said is void") from self._error

    @property
    def violations(self) -> list[Violation]:
        """All until now. Raises RuntimeError if the checker itself has failed."""
        if self._error is not None:
            raise RuntimeError("the checker has failed") from self._error
        with self._lock:
            return list(self._violations)

    @property
    def latest(self) -> Sighting:
        """What was seen last."""
        return self._latest

    def cause(self, index: int, restarts: int = 1, *, free: bool = False) -> None:
        """Something was just done to a slice that explains so many restarts of it.

        ``free``: Slurm or an administrator has ordered them, so they cost no budget.
        """
        with self._lock:
            self.causes.expect(index, restarts, time.time(), free=free)

    def cancelled(self, index: int) -> None:
        """A slice was just cancelled by order."""
        with self._lock:
            self.causes.cancelled.add(index)
            self.causes.expect(index, 1, time.time())

    def expect_power_cut(self) -> None:
        """Nobody will be left who could withdraw cluster.env, until a service starts again."""
        with self._lock:
            self.causes.power_cut = True

    def _watch(self) -> None:
        try:
            while not self._stop.wait(_LOOK_EVERY_S):
                self.judge(self.look())
        except BaseException as error:
            self._error = error
            raise

    def judge(self, seen: Sighting) -> None:
        """Has every rule look at a sighting."""
        with self._lock:
            for rule in self._rules:
                self._violations += [
                    Violation(rule.invariant, seen.time, words) for words in rule.look(seen)
                ]
        self._latest = seen

    def look(self) -> Sighting:
        """All that can be seen now."""
        home = self._subject.home
        found = sightings.processes(str(home), self._subject.exempt)
        workers = sightings.workers(found)
        published = sightings.proxy_of(home / "cluster.env")
        status = sightings.read_status(home / "state" / "status.json")
        self._runs |= {str(status["run_id"])} if status.get("run_id") else set()
        rm = next(
            (p.flag("resource_manager_address") for p in found if p.flag("num_elastic_instances")),
            None,
        )
        return Sighting(
            time=time.time(),
            processes=tuple(found),
            workers=tuple(workers),
            tasks=self._tasks(found),
            published=published,
            answers=bool(published and published[1] and sightings.speaks_http2(published)),
            rm=_speaks(rm),
            status=status,
            lines=tuple(self._events.lines()),
        )

    def _tasks(self, found: list[sightings.Process]) -> tuple[Task, ...] | None:
        if self._queue is None:
            return tuple(sightings.runners(found))
        tasks = self._queue.tasks()
        if tasks is None:
            return None
        # Others' arrays, such as those that preempt ours, are no part of the service.
        return tuple(task for task in tasks if any(run in task.name for run in self._runs))


def _speaks(address: str | None) -> bool | None:
    if address is None:
        return None
    host, _, port = address.rpartition(":")
    return sightings.speaks_http2((host, int(port)))
