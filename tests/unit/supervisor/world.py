# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""A service as its decisions see it, from one look to the next."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from pathways_slurm.decide import decide
from pathways_slurm.events import Reason
from pathways_slurm.maintenance import Request
from pathways_slurm.model import Component, ComponentView, Memory, Observation, Rules
from pathways_slurm.notices import Notices
from pathways_slurm.plan import (
    Action,
    Announce,
    Command,
    Forget,
    Plan,
    Release,
    Requeue,
    Submit,
)
from pathways_slurm.runtime_files import Notice, Orders, Report, SliceReport
from pathways_slurm.scheduler.base import Node, Task
from pathways_slurm.states import TaskState

RULES = Rules(min_slices=2, max_slices=3, component_budget=(2, 600.0), slice_budget=(3, 600.0))
UP = ComponentView(alive=True, answers=True)
SILENT = ComponentView(alive=True, answers=False)
KILLED = ComponentView(alive=False, answers=False, ended="ended by signal 9 (SIGKILL)")


def running(index: int, incarnation: int = 1) -> Task:
    node = Node(f"n{index}", f"127.0.{index + 1}.1")
    return Task(
        f"7_{index}",
        index,
        TaskState.RUNNING,
        restarts=incarnation - 1,
        incarnation=incarnation,
        nodes=(node,),
    )


def ended(index: int, state: TaskState = TaskState.FAILED, **fields: Any) -> Task:
    return replace(running(index), state=state, reason="host 0 ended by signal 9", **fields)


def all_answer(indices: Iterable[int]) -> dict[int, tuple[int, ...]]:
    """What is observed of slices whose every host answers."""
    return dict.fromkeys(indices, ())


def seen(
    *tasks: Task,
    answering: Iterable[int] = (),
    rm: ComponentView = UP,
    proxy: ComponentView = UP,
    published: bool = False,
    stop: str = "",
    found: Mapping[str, str] | None = None,
    stale: str = "",
) -> Observation:
    return Observation(
        tasks=None if stale else tasks,
        stale_reason=stale,
        silent=all_answer(answering),
        components={Component.RM: rm, Component.PROXY: proxy},
        published=published,
        stop_reason=stop,
        found=found or {},
    )


def report(*slices: SliceReport, settled: bool = True, shutting_down: bool = False) -> Report:
    """By the resource manager; slices that are not given are alive in their first incarnation."""
    given = {item.index: item for item in slices}
    items = tuple(given.get(index, SliceReport(index, 1, alive=True)) for index in range(3))
    return Report(settled, shutting_down, items)


def noticed(index: int, deadline: float, **fields: Any) -> SliceReport:
    """A slice of which host 0 got SIGTERM."""
    alive = SliceReport(index, 1, alive=True, notice=Notice("host 0 got SIGTERM", deadline))
    return replace(alive, **fields)


class World:
    """Carries memory from one plan to the next, as the service does.

    Attributes:
        orders: That the resource manager reads.
        announced: What programs read; None before the first look.
        acknowledged: What programs answered.
        maintenance: What was asked for; None if that can't be read.
    """

    def __init__(self, rules: Rules = RULES) -> None:
        self.rules = rules
        self.memory = Memory("run")
        self.now = 1000.0
        self.orders = Orders()
        self.announced: Notices | None = None
        self.acknowledged: frozenset[tuple[int, int]] = frozenset()
        self.maintenance: dict[int, Request] | None = {}

    def look(self, observation: Observation, after_s: float = 1.0) -> Plan:
        """Plans, and returns that without what is only told: that is in the attributes."""
        self.now += after_s
        observation = replace(
            observation,
            orders=self.orders,
            announced=self.announced,
            acknowledged=self.acknowledged,
            maintenance=self.maintenance,
        )
        plan = decide(self.rules, self.memory, observation, self.now)
        self.memory = plan.memory
        for action in plan.actions:
            match action:
                case Submit(submission):
                    self.memory = self.memory.with_array(submission.tag, "7")
                case Command(orders):
                    self.orders = orders
                case Announce(notices):
                    self.announced = notices
                case Forget(answers):
                    self.acknowledged -= set(answers)
        told = (Command, Announce, Forget)
        return replace(plan, actions=tuple(a for a in plan.actions if not isinstance(a, told)))

    def ready(self) -> Observation:
        """Brings all slices up, and returns what is seen then."""
        self.look(seen(rm=KILLED, proxy=KILLED))
        self.look(seen(proxy=SILENT))
        everything = seen(*map(running, range(3)), answering=range(3))
        self.look(everything)
        published = replace(everything, published=True)
        self.look(published)
        return published


def rerun(index: int) -> tuple[Action, ...]:
    """What has the task of an ended run run again."""
    return Requeue(f"7_{index}", index), Release(f"7_{index}", index)


def kinds(plan: Plan) -> list[type[Action]]:
    return [type(action) for action in plan.actions]


def reasons(plan: Plan) -> list[Reason]:
    return [note.reason for note in plan.notes]
