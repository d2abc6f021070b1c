# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""How a service ends, as decisions."""

from dataclasses import replace

from tests.unit.supervisor.world import KILLED, SILENT, World, ended, kinds, report, seen

from pathways_slurm.decide_stop import ANNOUNCE_S, KILL_AFTER_S, STOP_DEADLINE_S
from pathways_slurm.model import Component
from pathways_slurm.notices import Shutdown
from pathways_slurm.plan import Cancel, Publish, StopComponent, Withdraw
from pathways_slurm.runtime_files import Orders
from pathways_slurm.states import ServicePhase, TaskState


def test_stopping_ends_everything_and_only_then_exits() -> None:
    world = World()
    view = world.ready()
    plan = world.look(replace(view, stop_reason="asked to by SIGTERM"))
    assert plan.actions == (
        Withdraw(),
        Cancel(("7_0", "7_1", "7_2")),
        StopComponent(Component.PROXY),
        StopComponent(Component.RM),
    )
    assert plan.exit_code is None
    cancelled = tuple(ended(i, TaskState.CANCELLED) for i in range(3))
    half = seen(*cancelled, rm=KILLED, proxy=SILENT)
    assert world.look(half).exit_code is None
    assert world.look(seen(*cancelled, rm=KILLED, proxy=KILLED)).exit_code == 0
    assert world.memory.phase is ServicePhase.STOPPED


def test_stopping_gives_up_after_a_deadline_and_says_what_is_left() -> None:
    world = World()
    view = replace(world.ready(), stop_reason="asked to by SIGTERM")
    world.look(view)
    plan = world.look(replace(view, tasks=None, stale_reason="hung"), STOP_DEADLINE_S)
    assert plan.exit_code == 1
    assert "the scheduler does not answer: hung" in plan.notes[-1].message
    assert world.memory.phase is ServicePhase.STOPPING, "whoever comes next goes on"


def test_what_does_not_end_when_told_is_killed() -> None:
    world = World()
    view = replace(world.ready(), stop_reason="asked to by SIGTERM")
    assert StopComponent(Component.RM) in world.look(view).actions
    assert StopComponent(Component.RM) in world.look(view, KILL_AFTER_S / 2).actions
    late = world.look(view, KILL_AFTER_S)
    assert StopComponent(Component.RM, force=True) in late.actions


def test_a_restarted_supervisor_goes_on_ending() -> None:
    world = World()
    view = world.ready()
    world.look(replace(view, stop_reason="asked to by SIGTERM"))
    plan = world.look(view)
    assert Cancel in kinds(plan)
    assert Publish not in kinds(plan)


def test_the_resource_manager_learns_of_the_end_before_its_slices_are_told_to_go() -> None:
    world = World()
    view = replace(world.ready(), stop_reason="asked to by SIGTERM", report=report())
    plan = world.look(view)
    assert plan.actions == (Withdraw(), StopComponent(Component.PROXY))
    assert world.orders == Orders(shutdown="asked to by SIGTERM")
    plan = world.look(replace(view, report=report(shutting_down=True)), 0.2)
    assert Cancel(("7_0", "7_1", "7_2")) in plan.actions
    assert StopComponent(Component.RM) in plan.actions


def test_a_resource_manager_that_does_not_react_delays_the_end_by_little() -> None:
    world = World()
    view = replace(world.ready(), stop_reason="asked to by SIGTERM", report=report())
    world.look(view)
    assert Cancel not in kinds(world.look(view, ANNOUNCE_S / 2))
    assert Cancel in kinds(world.look(view, ANNOUNCE_S / 2))


def test_nobody_waits_for_a_resource_manager_that_is_gone() -> None:
    world = World()
    view = world.ready()
    gone = {**view.components, Component.RM: KILLED}
    view = replace(view, stop_reason="asked to by SIGTERM", components=gone, report=report())
    assert Cancel in kinds(world.look(view))


def test_programs_read_of_the_end_and_of_nothing_else_by_then() -> None:
    world = World()
    view = replace(world.ready(), stop_reason="asked to by SIGTERM")
    world.look(view)
    assert world.announced is not None
    assert world.announced.shutdown == Shutdown("asked to by SIGTERM", world.now)
    sequence = world.announced.sequence
    world.look(view)
    assert world.announced.sequence == sequence, "said once"
