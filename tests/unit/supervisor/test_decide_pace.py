# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""How soon the supervisor looks again."""

from dataclasses import replace

import pytest
from tests.unit.supervisor.world import (
    KILLED,
    RULES,
    SILENT,
    World,
    all_answer,
    ended,
    running,
    seen,
)

from pathways_slurm.causes import Cause
from pathways_slurm.decide_pace import look_again_s
from pathways_slurm.model import Component, Memory, Observation, SliceMemory
from pathways_slurm.states import SliceState, TaskState

SLURM = replace(RULES, tick_s=5.0)
ANSWERING = tuple(Component)


def _with(state: SliceState, since: float, failures: tuple[float, ...] = ()) -> Memory:
    kept = SliceMemory(state, since, spent={Cause.CRASH: failures})
    return Memory("run", slices={0: SliceMemory(SliceState.READY), 1: kept})


@pytest.mark.parametrize(
    ("age_s", "pause_s"),
    [(0.0, 0.5), (2.5, 0.5), (10.0, 2.0), (25.0, 5.0), (1e6, 5.0), (-50.0, 0.5)],
)
def test_a_slice_on_its_way_is_looked_at_less_often_the_longer_it_stays_as_it_is(
    age_s: float, pause_s: float
) -> None:
    memory = _with(SliceState.STARTING, 1000.0 - age_s)
    assert look_again_s(SLURM, memory, ANSWERING, 1000.0) == pytest.approx(pause_s)


@pytest.mark.parametrize(
    "state",
    [SliceState.READY, SliceState.FAILED, SliceState.CANCELLED, SliceState.MAINTENANCE],
)
def test_a_slice_that_nothing_is_expected_of_makes_no_looks(state: SliceState) -> None:
    assert look_again_s(SLURM, _with(state, 1000.0), ANSWERING, 1000.0) == 5.0


def test_a_restart_that_was_just_ordered_is_a_change() -> None:
    memory = _with(SliceState.PENDING, 0.0, failures=(1.0, 999.0))
    assert look_again_s(SLURM, memory, ANSWERING, 1000.0) == 0.5


def test_a_shorter_tick_is_kept() -> None:
    rules = replace(RULES, tick_s=0.1)
    assert look_again_s(rules, _with(SliceState.STARTING, 1000.0), ANSWERING, 1000.0) == 0.1


def _looks_in(world: World, view: Observation, seconds: float) -> int:
    """How many looks there are within a time in which nothing changes."""
    end, looks = world.now + seconds, 0
    pause_s = world.look(view, 0.0).look_again_s
    while world.now + pause_s <= end:
        pause_s = world.look(view, pause_s).look_again_s
        looks += 1
    return looks


def test_a_quiet_service_is_looked_at_twelve_times_a_minute() -> None:
    world = World(SLURM)
    assert _looks_in(world, world.ready(), 60.0) == 12


def test_one_loss_makes_few_more_looks_than_none() -> None:
    world = World(SLURM)
    view = world.ready()
    world.look(replace(view, tasks=(running(0), ended(1), running(2)), silent=all_answer([0, 2])))
    waits = replace(running(1, 2), state=TaskState.PENDING, reason="Resources")
    pending = replace(view, tasks=(running(0), waits, running(2)), silent=all_answer([0, 2]))
    assert 15 <= _looks_in(world, pending, 60.0) <= 25
    assert _looks_in(world, pending, 60.0) == 12


def test_components_that_start_are_looked_at_soon() -> None:
    world = World(SLURM)
    world.memory = Memory("run", since=world.now)
    assert world.look(seen(rm=KILLED, proxy=KILLED)).look_again_s == 0.5
    assert world.look(seen(rm=SILENT, proxy=KILLED)).look_again_s == 0.5


def test_a_component_that_was_just_restarted_is_looked_at_soon() -> None:
    world = World(SLURM)
    view = world.ready()
    assert (
        world.look(
            replace(view, components={**view.components, Component.PROXY: KILLED})
        ).look_again_s
        == 0.5
    )


def test_a_proxy_that_waited_for_the_first_slice_is_looked_at_soon() -> None:
    memory = _with(SliceState.READY, 999.0)
    assert look_again_s(SLURM, memory, (Component.RM,), 1000.0) == 0.5
    assert look_again_s(SLURM, memory, ANSWERING, 1000.0) == 5.0
