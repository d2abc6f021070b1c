# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The service's decisions, told as tables of what is seen and what is done about it."""

from dataclasses import replace

import pytest
from tests.unit.supervisor.world import (
    KILLED,
    RULES,
    SILENT,
    World,
    all_answer,
    ended,
    kinds,
    reasons,
    running,
    seen,
)

from pathways_slurm.decide import decide
from pathways_slurm.events import Reason
from pathways_slurm.model import Component, ComponentView, Memory
from pathways_slurm.plan import Cancel, Publish, StartComponent, Submit, Withdraw
from pathways_slurm.states import ServicePhase, SliceState, TaskState


def test_the_first_look_starts_both_components_and_submits_every_slice_in_one_array() -> None:
    plan = World().look(seen(rm=ComponentView(False, False), proxy=ComponentView(False, False)))
    assert plan.actions[:2] == (StartComponent(Component.RM), StartComponent(Component.PROXY))
    (submit,) = plan.actions[2:]
    assert isinstance(submit, Submit)
    assert submit.submission.indices == (0, 1, 2)
    assert submit.submission.first_incarnation == 1


def test_a_proxy_that_has_ended_is_not_started_while_the_resource_manager_is_away() -> None:
    world = World()
    view = world.ready()
    both = {Component.RM: KILLED, Component.PROXY: KILLED}
    assert kinds(world.look(replace(view, components=both))) == [StartComponent, Withdraw]
    proxy = {**view.components, Component.PROXY: KILLED}
    plan = world.look(replace(view, components=proxy, published=False))
    assert plan.actions == (StartComponent(Component.PROXY),)


def test_a_submission_without_an_answer_is_repeated_under_the_same_tag() -> None:
    world = World()
    first = decide(RULES, world.memory, seen(), world.now)
    second = decide(RULES, first.memory, seen(), world.now + 1)
    submits = [a for p in (first, second) for a in p.actions if isinstance(a, Submit)]
    assert len(submits) == 2
    assert submits[0].submission.tag == submits[1].submission.tag
    assert len(second.memory.submissions) == 1


def test_a_submission_that_was_accepted_unseen_is_adopted() -> None:
    world = World()
    first = decide(RULES, world.memory, seen(), world.now)
    tag = first.memory.submissions[0].tag
    second = decide(RULES, first.memory, seen(running(0), found={tag: "7"}), world.now + 1)
    assert Submit not in kinds(second)
    assert second.memory.submissions[0].array_id == "7"


@pytest.mark.parametrize("ready", [0, 1, 2, 3])
def test_the_address_is_published_only_when_min_slices_answer(ready: int) -> None:
    world = World()
    world.look(seen())
    plan = world.look(seen(*map(running, range(3)), answering=range(ready)))
    assert (Publish in kinds(plan)) == (ready >= RULES.min_slices)


def test_the_address_is_not_published_while_the_proxy_is_silent() -> None:
    world = World()
    world.look(seen())
    everything = seen(*map(running, range(3)), answering=range(3), proxy=SILENT)
    assert Publish not in kinds(world.look(everything))


def test_a_slice_lost_below_min_slices_does_not_withdraw_the_address() -> None:
    world = World()
    view = world.ready()
    plan = world.look(replace(view, tasks=(running(0), ended(1), ended(2))))
    assert Withdraw not in kinds(plan)
    assert plan.memory.phase is ServicePhase.DEGRADED


def test_the_service_fails_when_too_few_slices_can_still_come() -> None:
    world = World()
    view = world.ready()
    gone = (running(0), ended(1, TaskState.CANCELLED), ended(2, TaskState.CANCELLED))
    plan = world.look(replace(view, tasks=gone))
    assert plan.memory.phase is ServicePhase.STOPPING
    assert Cancel(("7_0",)) in plan.actions
    assert Withdraw() in plan.actions
    assert "fewer than MIN_SLICES=2" in plan.notes[-1].message
    down = seen(ended(0, TaskState.CANCELLED), rm=KILLED, proxy=KILLED)
    assert world.look(down).exit_code == 1
    assert world.memory.phase is ServicePhase.FAILED


def test_a_service_that_is_not_ready_in_time_fails_and_says_what_was_missing() -> None:
    world = World(replace(RULES, start_timeout_s=60.0))
    world.memory = Memory("run", since=world.now)
    waiting = seen(*map(running, range(3)), answering={0})
    assert world.look(waiting, 1.0).memory.phase is ServicePhase.STARTING
    assert world.look(waiting, 50.0).memory.phase is ServicePhase.STARTING
    plan = world.look(waiting, 10.0)
    assert plan.memory.phase is ServicePhase.STOPPING
    assert "PATHWAYS_START_TIMEOUT_S=60): 1 of 3 slices are, and 2 must be" in plan.memory.reason


def test_the_time_to_start_is_over_once_it_has_started() -> None:
    world = World(replace(RULES, start_timeout_s=60.0))
    world.memory = Memory("run", since=world.now)
    view = world.ready()
    plan = world.look(replace(view, silent=all_answer([0])), 1000.0)
    assert plan.memory.phase is ServicePhase.DEGRADED


def test_a_silent_scheduler_changes_nothing_and_is_said_once() -> None:
    world = World()
    view = world.ready()
    stale = replace(view, tasks=None, stale_reason="timed out", silent={})
    first, second = world.look(stale), world.look(stale)
    assert (reasons(first), reasons(second)) == ([Reason.SchedulerUnavailable], [])
    assert not first.actions
    assert all(s.state is SliceState.READY for s in world.memory.slices.values())
    assert reasons(world.look(view)) == [Reason.SchedulerAnswersAgain]
