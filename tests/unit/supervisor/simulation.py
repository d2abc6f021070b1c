# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""A scheduler, its nodes and a supervisor as plain values: whole services without any process.

The scheduler does what Slurm does, in simulated time. Whatever can go wrong between it and the
supervisor is a method.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pathways_slurm.causes import Cause, cause_of
from pathways_slurm.decide import decide
from pathways_slurm.model import Component, ComponentView, Memory, Observation, Rules
from pathways_slurm.notices import Notices
from pathways_slurm.plan import (
    Action,
    Announce,
    Cancel,
    Command,
    Forget,
    Plan,
    Publish,
    Release,
    Requeue,
    Submit,
    Withdraw,
)
from pathways_slurm.processes import ProcessIdentity
from pathways_slurm.runtime_files import Notice, Orders, Report, SliceReport
from pathways_slurm.scheduler.base import Node, Task
from pathways_slurm.states import TaskState
from pathways_slurm.store import RunRecord, load_record, save_record

UP = ComponentView(alive=True, answers=True)

SCHEDULERS_OWN = (Submit, Requeue, Release, Cancel)
"""Actions that need the scheduler, and are about what it said."""


class NoAnswer(Exception):
    """The scheduler can't be reached, or its answer was lost."""


@dataclass
class SimTask:
    """One array task, with how long it has been in its state."""

    index: int
    array: str
    first: int
    state: TaskState = TaskState.PENDING
    reason: str = ""
    restarts: int = 0
    age_s: float = 0.0
    after: TaskState = TaskState.FAILED
    exit_code: int | None = None
    hung: bool = False
    notice: bool = False
    preempted: bool = False
    users: bool = False

    @property
    def id(self) -> str:
        return f"{self.array}_{self.index}"

    @property
    def incarnation(self) -> int:
        return self.first + self.restarts

    def move(self, state: TaskState, reason: str = "") -> None:
        self.state, self.reason, self.age_s = state, reason, 0.0

    def end(self, after: TaskState, reason: str, exit_code: int | None = None) -> None:
        """Its processes end; the state that follows is shown a little later."""
        self.after, self.exit_code, self.hung = after, exit_code, False
        self.move(TaskState.COMPLETING, reason)

    def seen(self) -> Task:
        running = self.state in (TaskState.RUNNING, TaskState.COMPLETING)
        nodes = (Node(f"n{self.index}", f"127.0.{self.index + 1}.1"),) if running else ()
        return Task(
            self.id,
            self.index,
            self.state,
            self.reason,
            self.restarts,
            self.incarnation,
            exit_code=self.exit_code if self.state.ended else None,
            nodes=nodes,
            preempted=self.preempted and self.state.ended,
        )


@dataclass
class Scheduler:
    """The scheduler's side."""

    arrays: dict[str, str] = field(default_factory=dict)
    tasks: list[SimTask] = field(default_factory=list)
    down: bool = False
    lose_answers: bool = False

    def live(self, index: int) -> list[SimTask]:
        return [t for t in self.tasks if t.index == index and not t.state.ended]

    def newest(self, index: int) -> SimTask | None:
        found = [t for t in self.tasks if t.index == index]
        return max(found, key=lambda t: t.incarnation, default=None)

    def pass_time(self, seconds: float) -> None:
        for task in self.tasks:
            task.age_s += seconds
            match task.state:
                case TaskState.PENDING if task.age_s >= 1.0 and task.reason != "BeginTime":
                    task.hung = task.notice = task.preempted = False
                    task.exit_code = None
                    task.move(TaskState.RUNNING)
                case TaskState.PENDING if task.reason == "BeginTime" and task.age_s >= 120.0:
                    task.move(TaskState.PENDING, "Resources")
                case TaskState.COMPLETING if task.age_s >= 1.0:
                    self._complete(task)

    def _complete(self, task: SimTask) -> None:
        if task.after is TaskState.PENDING:
            task.restarts += 1
            task.move(TaskState.PENDING, "BeginTime")
        else:
            task.move(task.after, task.reason)

    def answer(self) -> None:
        if self.down:
            raise NoAnswer

    def submit(self, action: Submit) -> str:
        self.answer()
        asked = action.submission
        if asked.tag not in self.arrays:
            array = self.arrays[asked.tag] = str(len(self.arrays) + 7)
            self.tasks += [SimTask(i, array, asked.first_incarnation) for i in asked.indices]
        if self.lose_answers:
            raise NoAnswer
        return self.arrays[asked.tag]

    def order(self, action: Requeue | Release | Cancel) -> None:
        self.answer()
        ids = action.task_ids if isinstance(action, Cancel) else (action.task_id,)
        for task in [t for t in self.tasks if t.id in ids]:
            match action:
                case Requeue() if task.state is TaskState.RUNNING:
                    task.end(TaskState.PENDING, "requeued")
                case Requeue() if task.state.ended and task.state is not TaskState.CANCELLED:
                    task.restarts += 1
                    task.move(TaskState.PENDING, "BeginTime")
                case Release() if task.state is TaskState.HELD or task.reason == "BeginTime":
                    task.move(TaskState.PENDING, "")
                case Cancel() if not task.state.ended:
                    task.move(TaskState.CANCELLED)
        if self.lose_answers:
            raise NoAnswer


@dataclass
class Simulation:
    """A service. Every look is checked by whoever calls; see ``test_decide_properties``."""

    rules: Rules
    file: Path
    now: float = 1000.0
    scheduler: Scheduler = field(default_factory=Scheduler)
    memory: Memory = field(default_factory=lambda: Memory("run", since=1000.0))
    published: bool = False
    orders: Orders = field(default_factory=Orders)
    announced: Notices | None = None
    report_silent: bool = False
    die_after: int | None = None
    hidden: set[int] = field(default_factory=set)
    restarts: list[tuple[int, Cause, float]] = field(default_factory=list)

    def observe(self) -> Observation:
        tasks: tuple[Task, ...] | None = None
        found: dict[str, str] = {}
        if not self.scheduler.down:
            unknown = [s.tag for s in self.memory.submissions if not s.array_id]
            arrays = self.scheduler.arrays
            found = {tag: arrays[tag] for tag in unknown if tag in arrays}
            known = {s.array_id for s in self.memory.submissions} | set(found.values())
            tasks = tuple(
                t.seen()
                for t in self.scheduler.tasks
                if t.array in known and t.index not in self.hidden
            )
        self.hidden.clear()
        running = [t for t in self.scheduler.tasks if t.state is TaskState.RUNNING]
        silent = {t.index: (0,) if t.hung or t.age_s < 1.0 else () for t in running}
        return Observation(
            tasks=tasks,
            stale_reason="" if tasks is not None else "timed out",
            silent=silent if tasks is not None else {},
            components=dict.fromkeys(Component, UP),
            published=self.published,
            found=found,
            report=None if self.report_silent else Report(True, False, tuple(self._reports())),
            orders=self.orders,
            announced=self.announced,
        )

    def _reports(self) -> Iterator[SliceReport]:
        for index in range(self.rules.max_slices):
            task = self.scheduler.newest(index)
            if task is None:
                continue
            alive = task.state is TaskState.RUNNING and task.age_s >= 1.0
            notice = Notice("host 0 got SIGTERM", self.now + 10.0) if task.notice else None
            reason = "" if alive else "host 0 ended: connection closed"
            began = alive or task.state is not TaskState.PENDING
            run = task.incarnation if began else task.incarnation - 1
            yield SliceReport(index, max(0, run), alive, reason, notice)

    def look(self, seen: Observation | None = None) -> Plan:
        """One turn of the loop: also with an answer that is late."""
        seen = seen or self.observe()
        plan = decide(self.rules, self.memory, seen, self.now)
        saved = self.memory = plan.memory
        for place, action in enumerate(plan.actions):
            if self.die_after is not None and place >= self.die_after:
                break
            try:
                self._perform(action)
            except NoAnswer:
                continue
        if self.die_after is not None:
            self._restart(saved)
        return plan

    def _restart(self, saved: Memory) -> None:
        """Another supervisor goes on from what is on disk."""
        self.die_after = None
        root = ProcessIdentity(1, 1, "boot")
        save_record(self.file, RunRecord(saved, root, "slurm", ""))
        record = load_record(self.file)
        assert record is not None
        self.memory = record.memory

    def _perform(self, action: Action) -> None:
        match action:
            case Submit():
                array = self.scheduler.submit(action)
                self.memory = self.memory.with_array(action.submission.tag, array)
            case Requeue() | Release() | Cancel():
                self._count(action)
                self.scheduler.order(action)
            case Command(orders):
                self.orders = orders
            case Announce(notices):
                self.announced = notices
            case Publish():
                self.published = True
            case Withdraw():
                self.published = False
            case Forget():
                pass

    def _count(self, action: Requeue | Release | Cancel) -> None:
        """Notes restarts that cost a budget, by what the scheduler itself knows of the run."""
        if self.scheduler.down or not isinstance(action, Requeue):
            return
        task = next(t for t in self.scheduler.tasks if t.id == action.task_id)
        free = task.preempted or task.notice or task.state in (TaskState.PENDING, TaskState.HELD)
        if not free and task.state is not TaskState.COMPLETING:
            self.restarts.append((task.index, cause_of(task.seen(), None), self.now))

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.scheduler.pass_time(seconds)
