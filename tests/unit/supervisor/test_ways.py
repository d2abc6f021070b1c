# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The table of every way a slice goes says what is decided, and the document says the table."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.supervisor.world import (
    RULES,
    World,
    all_answer,
    ended,
    noticed,
    report,
    running,
)

from pathways_slurm.causes import OnBudget
from pathways_slurm.maintenance import Request
from pathways_slurm.model import Observation
from pathways_slurm.runtime_files import EndKind, FirstEnd, SliceReport
from pathways_slurm.scheduler.base import Task
from pathways_slurm.states import TaskState
from pathways_slurm.ways import WAYS, table

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "slices.md"

NO_BUDGET = replace(RULES, slice_budget=(0, 600.0))


def _look(world: World, view: Observation, task: Task | None, after_s: float = 1.0) -> None:
    tasks = (running(0), task, running(2)) if task else (running(0), running(2))
    world.look(replace(view, tasks=tasks, silent=all_answer([0, 2])), after_s)


def _silent(world: World, view: Observation, looks: int) -> None:
    for _ in range(looks):
        world.look(replace(view, silent={0: (), 1: (0,), 2: ()}))


def _absent(world: World, view: Observation) -> None:
    _look(world, view, None)
    _look(world, view, None, 31.0)


def _twice(world: World, view: Observation) -> None:
    _look(world, view, ended(1))
    _look(world, view, ended(1, incarnation=2), 0.1)


def _notice(world: World, view: Observation) -> None:
    world.look(replace(view, report=report(noticed(1, world.now + 25.0))))


def _maintenance(world: World, view: Observation) -> None:
    world.maintenance = {1: Request(world.now + 60.0, "new kernel", world.now)}
    world.look(view)
    _look(world, view, ended(1, TaskState.COMPLETED))


def _left(world: World, view: Observation) -> None:
    """Slurm names a host that only followed."""
    told = SliceReport(
        1, 1, alive=False, reason="host 1 left: SIGINT", end=FirstEnd(1, EndKind.LEFT)
    )
    followed = replace(ended(1, exit_code=4), reason="host 0 exited with code 4")
    _look(world, replace(view, report=report(told)), followed)


def _after_notice(world: World, view: Observation, task: Task) -> None:
    _notice(world, view)
    told = report(noticed(1, world.now + 20.0, alive=False, reason="host 0 ended"))
    _look(world, replace(view, report=told), task)


def _requeued(for_: str) -> Task:
    return replace(running(1, 2), state=TaskState.PENDING, reason="BeginTime", ended_for=for_)


def _of(task: Task) -> Callable[[World, Observation], object]:
    return lambda world, view: _look(world, view, task)


def _held(reason: str) -> Task:
    return replace(running(1), state=TaskState.HELD, reason=reason)


HAPPENS: dict[str, Callable[[World, Observation], object]] = {
    "crash": _of(ended(1, signal=9)),
    "error": _of(replace(ended(1, exit_code=3), reason="host 0 exited with code 3")),
    "exit": _left,
    "silence": lambda world, view: _silent(world, view, 1),
    "hang": lambda world, view: _silent(world, view, 11),
    "launch": _of(_held("launch failure limit exceeded requeued held")),
    "held": _of(_held("job requeued in held state")),
    "hold": _of(_held("JobHeldAdmin")),
    "node": _of(_requeued("a node of it failed")),
    "node, no requeue": _of(replace(ended(1, TaskState.NODE_FAIL), reason="NodeDown")),
    "leftover": lambda world, view: world.look(
        replace(
            view,
            tasks=(running(0), running(1, 2), running(2)),
            report=report(SliceReport(1, 1, alive=True)),
        )
    ),
    "drain": lambda world, view: world.look(view),
    "time limit": lambda world, view: _after_notice(world, view, ended(1, TaskState.TIMEOUT)),
    "time limit, no notice": _of(replace(ended(1, TaskState.TIMEOUT), reason="TimeLimit")),
    "missing": _absent,
    "requeue": _of(_requeued("requeued by order (scontrol requeue)")),
    "power down": _of(_requeued("a node of it failed")),
    "preemption": _of(_requeued("preempted")),
    "preemption, grace": lambda world, view: _after_notice(
        world, view, replace(ended(1, TaskState.COMPLETED), preempted=True)
    ),
    "notice": _notice,
    "after notice": lambda world, view: _after_notice(world, view, ended(1)),
    "maintenance": _maintenance,
    "cancel": _of(replace(ended(1, TaskState.CANCELLED), reason="")),
    "backoff": _twice,
    "failed": _of(ended(1)),
    "wait": _of(ended(1)),
}

OTHER_RULES = {"failed": NO_BUDGET, "wait": replace(NO_BUDGET, on_budget=OnBudget.WAIT)}


@pytest.mark.parametrize("name", WAYS)
def test_a_slice_goes_as_the_table_says(name: str) -> None:
    way = WAYS[name]
    world = World(OTHER_RULES.get(name, RULES))
    view = world.ready()
    HAPPENS[name](world, view)
    kept = world.memory.slice(1)
    pattern = re.escape(way.reason).replace("…", ".*")
    assert re.fullmatch(pattern, kept.reason), kept.reason
    assert kept.state is way.state
    if way.cause is not None:
        assert list(kept.spent) == [way.cause]
    elif name != "backoff":
        assert not kept.spent


def test_the_document_has_the_table() -> None:
    assert table() in DOCUMENT.read_text(encoding="utf-8"), f"should be:\n{table()}"
