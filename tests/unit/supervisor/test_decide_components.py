# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What is decided about resource manager and proxy."""

from dataclasses import replace

import pytest
from tests.unit.supervisor.world import KILLED, RULES, SILENT, World, kinds, reasons, seen

from pathways_slurm.events import Reason
from pathways_slurm.model import Component, Observation
from pathways_slurm.plan import Plan, Publish, StartComponent, StopComponent, Withdraw
from pathways_slurm.states import ServicePhase


@pytest.mark.parametrize(
    ("component", "reason"),
    [(Component.RM, Reason.ResourceManagerEnded), (Component.PROXY, Reason.ProxyEnded)],
)
def test_a_component_that_ends_is_started_again_within_its_budget(
    component: Component, reason: Reason
) -> None:
    world = World()
    view = world.ready()
    world.look(view)
    dead = replace(view, components={**view.components, component: KILLED})
    plan = world.look(dead)
    assert StartComponent(component) in plan.actions
    assert reason in reasons(plan)
    for _ in range(60):
        plan = world.look(dead)
    assert world.memory.phase is ServicePhase.STOPPING
    assert "restart budget has run out (2 of 2" in world.memory.reason


def test_the_address_is_withdrawn_when_the_proxy_ends_and_comes_back_with_it() -> None:
    world = World()
    view = world.ready()
    plan = world.look(replace(view, components={**view.components, Component.PROXY: KILLED}))
    assert Withdraw() in plan.actions
    assert Publish() in world.look(replace(view, published=False)).actions


def test_a_proxy_that_hangs_is_withdrawn_after_a_while_only() -> None:
    world = World()
    view = world.ready()
    hung = replace(view, components={**view.components, Component.PROXY: SILENT})
    assert Withdraw not in kinds(world.look(hung))
    assert Withdraw not in kinds(world.look(hung, 10.0)), "machines are slow at times"
    assert Withdraw in kinds(world.look(hung, 5.0))


def _silent(view: Observation, component: Component) -> Observation:
    return replace(view, components={**view.components, component: SILENT})


def _look_on(world: World, view: Observation, seconds: int) -> Plan:
    for _ in range(seconds):
        plan = world.look(view, 1.0)
    return plan


@pytest.mark.parametrize(
    ("component", "reason"),
    [(Component.RM, Reason.ResourceManagerEnded), (Component.PROXY, Reason.ProxyEnded)],
)
def test_a_component_that_hangs_is_killed_and_started_again(
    component: Component, reason: Reason
) -> None:
    world = World()
    view = world.ready()
    assert StopComponent not in kinds(_look_on(world, _silent(view, component), 15))
    plan = world.look(_silent(view, component))
    assert StopComponent(component, force=True) in plan.actions
    assert plan.notes[0].reason is Reason.ComponentHung
    assert "has been silent for 15 s, though its process lives; it is killed" in (
        plan.notes[0].message
    )
    view = replace(view, published=component is not Component.PROXY)
    again = world.look(_silent(view, component))
    assert StopComponent(component, force=True) in again.actions, "it may not have got through"
    assert not again.notes
    gone = replace(KILLED, ended="")
    plan = world.look(replace(view, components={**view.components, component: gone}))
    assert StartComponent(component) in plan.actions
    (note,) = (n for n in plan.notes if n.reason is reason)
    assert "was killed: it had been silent for 15 s; started again (1 of 2" in note.message


def test_a_component_that_is_slow_now_and_then_is_let_be() -> None:
    world = World()
    view = world.ready()
    for _ in range(10):
        assert not _look_on(world, _silent(view, Component.PROXY), 14).actions
        assert not world.look(view).actions


def test_a_component_that_nobody_looked_at_for_a_while_is_not_taken_for_hung() -> None:
    """The supervisor itself was stopped, say, or a command of the scheduler took its time."""
    world = World()
    view = world.ready()
    hung = _silent(view, Component.RM)
    world.look(hung)
    for _ in range(3):
        assert not world.look(hung, 100.0).actions


def test_a_component_that_has_not_answered_yet_gets_more_time() -> None:
    world = World()
    view = seen(rm=SILENT, proxy=KILLED)
    world.look(seen(rm=KILLED, proxy=KILLED))
    assert StopComponent not in kinds(_look_on(world, view, 120))
    assert StopComponent(Component.RM, force=True) in world.look(view).actions


def test_a_component_that_hangs_without_a_budget_ends_the_service() -> None:
    world = World(replace(RULES, component_budget=(0, 600.0)))
    view = world.ready()
    _look_on(world, _silent(view, Component.RM), 16)
    assert world.memory.phase is ServicePhase.STOPPING
    assert "has been silent for 15 s, and its restart budget has run out" in world.memory.reason


def test_a_silent_resource_manager_says_nothing_about_slices() -> None:
    world = World()
    view = world.ready()
    plan = _look_on(world, _silent(view, Component.RM), 14)
    assert reasons(plan) == []
    assert world.memory.phase is ServicePhase.READY
