# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Slices whose nodes are wanted for a while."""

import signal
from dataclasses import replace

import pytest
from tests.unit.supervisor.world import (
    RULES,
    World,
    all_answer,
    ended,
    reasons,
    rerun,
    running,
)

from pathways_slurm.events import Reason
from pathways_slurm.maintenance import Request
from pathways_slurm.model import Observation
from pathways_slurm.notices import Going, Notices
from pathways_slurm.plan import Notify, PowerDown, Requeue
from pathways_slurm.states import SliceState, TaskState

TERM = Notify("7_1", 1, signal.SIGTERM)
KILL = Notify("7_1", 1, signal.SIGKILL)


def _asked_for(world: World, within_s: float = 60.0) -> None:
    world.maintenance = {1: Request(world.now + within_s, "new kernel", world.now)}


def _ended(view: Observation) -> Observation:
    tasks = (running(0), ended(1, TaskState.COMPLETED), running(2))
    return replace(view, tasks=tasks, silent=all_answer([0, 2]))


def test_the_hosts_of_a_slice_that_is_asked_for_are_told_and_programs_too() -> None:
    world = World()
    view = world.ready()
    _asked_for(world)
    plan = world.look(view)
    assert plan.actions == (TERM,)
    assert reasons(plan) == [Reason.SliceNotice]
    assert world.memory.slice(1).state is SliceState.ENDING
    assert world.memory.slice(1).reason == "goes within 25 s: maintenance (new kernel)"
    going = Going(1, 1, world.now + 25.0, "maintenance (new kernel)")
    assert world.announced == Notices("run", 1, going=(going,))
    assert not world.look(view).actions, "once is enough"


def test_hosts_that_were_not_reached_are_told_again() -> None:
    world = World()
    view = world.ready()
    _asked_for(world)
    world.look(view)
    assert not world.look(view, 9.0).actions
    assert world.look(view, 1.0).actions == (TERM,)


def test_a_slice_that_does_not_go_in_time_is_killed() -> None:
    world = World()
    view = world.ready()
    _asked_for(world, within_s=5.0)
    world.look(view)
    assert not world.look(view, 2.0).actions
    assert world.look(view, 2.0).actions == (KILL,)
    assert world.look(view, 1.0).actions == (KILL,), "it may not have got through"


def test_a_deadline_that_is_past_already_still_gives_the_hosts_a_word() -> None:
    world = World()
    view = world.ready()
    _asked_for(world, within_s=0.0)
    assert world.look(view).actions == (TERM,)
    assert world.look(view).actions == (KILL,)


def test_a_slice_stays_down_until_the_request_is_withdrawn() -> None:
    world = World(replace(RULES, slice_budget=(0, 600.0)))
    view = world.ready()
    _asked_for(world)
    world.look(view)
    plan = world.look(_ended(view))
    assert plan.actions == (PowerDown(1, ("n1",)),)
    assert world.memory.slice(1).state is SliceState.MAINTENANCE
    assert "down for maintenance (new kernel)" in world.memory.slice(1).reason
    assert reasons(plan) == [Reason.SliceLost, Reason.SliceMaintenance]
    for _ in range(100):
        assert Requeue("7_1", 1) not in world.look(_ended(view), 60.0).actions
    world.maintenance = {}
    plan = world.look(_ended(view))
    assert plan.actions == rerun(1)
    assert reasons(plan) == [Reason.SliceRequeued]
    assert world.look(_ended(view)).actions == rerun(1), "it may not have got through"
    assert not world.memory.slice(1).failures
    world.look(replace(view, tasks=(running(0), running(1, 2), running(2))))
    assert world.memory.slice(1).state is SliceState.READY


def test_a_task_that_slurm_requeued_by_itself_goes_again_when_it_runs() -> None:
    world = World()
    view = world.ready()
    _asked_for(world)
    world.look(view)
    waiting = replace(running(1, 2), state=TaskState.PENDING, nodes=())
    world.look(replace(view, tasks=(running(0), waiting, running(2)), silent=all_answer([0, 2])))
    assert world.memory.slice(1).reason == (
        "waits for nodes; it is not to run, for maintenance is asked for"
    )
    again = replace(view, tasks=(running(0), running(1, 2), running(2)))
    assert world.look(again).actions == (TERM,)


@pytest.mark.parametrize("state", [TaskState.HELD, TaskState.NODE_FAIL])
def test_however_the_task_stands_it_is_left_alone_while_its_nodes_are_wanted(
    state: TaskState,
) -> None:
    world = World()
    view = world.ready()
    _asked_for(world)
    down = replace(view, tasks=(running(0), ended(1, state), running(2)))
    assert not world.look(down).actions
    assert world.memory.slice(1).state is SliceState.MAINTENANCE


def test_a_request_that_can_not_be_read_stands() -> None:
    world = World()
    view = world.ready()
    _asked_for(world)
    world.look(view)
    world.look(_ended(view))
    world.maintenance = None
    assert Requeue("7_1", 1) not in world.look(_ended(view)).actions


def test_other_slices_go_on() -> None:
    world = World()
    view = world.ready()
    _asked_for(world)
    for _ in range(5):
        world.look(view)
    assert world.memory.slice(0).state is SliceState.READY
    assert world.memory.slice(2).state is SliceState.READY


def test_a_cancelled_slice_is_cancelled_also_during_maintenance() -> None:
    world = World()
    view = world.ready()
    _asked_for(world)
    world.look(view)
    world.look(replace(view, tasks=(running(0), ended(1, TaskState.CANCELLED), running(2))))
    assert world.memory.slice(1).state is SliceState.CANCELLED
