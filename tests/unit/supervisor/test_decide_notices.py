# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Slices that go after notice, and what is told about them."""

from dataclasses import replace

import pytest
from tests.unit.supervisor.world import (
    RULES,
    World,
    all_answer,
    ended,
    noticed,
    reasons,
    report,
    rerun,
    running,
    seen,
)

from pathways_slurm.events import Reason
from pathways_slurm.model import Observation
from pathways_slurm.notices import Back, Going, Notices
from pathways_slurm.plan import Requeue
from pathways_slurm.runtime_files import Orders, SliceOrder, SliceReport
from pathways_slurm.states import SliceState, TaskState

SAVED = "its data is saved"


def _given_notice(world: World) -> Observation:
    """All slices are up, and slice 1 goes within 25 s."""
    view = replace(world.ready(), report=report(noticed(1, world.now + 25.0)))
    world.look(view)
    return view


def _gone(view: Observation, deadline: float, released: bool = True) -> Observation:
    reason = SAVED if released else "host 0 ended: connection closed"
    told = report(noticed(1, deadline, alive=False, reason=reason, released=released))
    tasks = (running(0), ended(1, TaskState.COMPLETED), running(2))
    return replace(view, tasks=tasks, silent=all_answer([0, 2]), report=told)


def test_a_new_service_announces_that_there_is_nothing_to_announce() -> None:
    world = World()
    world.look(seen())
    assert world.announced == Notices("run")


def test_a_slice_that_was_given_notice_is_ending_and_its_end_is_announced() -> None:
    world = World()
    view = replace(world.ready(), report=report(noticed(1, world.now + 25.0)))
    plan = world.look(view)
    assert not plan.actions
    assert [note.message for note in plan.notes] == ["slice 1 goes within 24 s: host 0 got SIGTERM"]
    assert reasons(plan) == [Reason.SliceNotice]
    assert world.memory.slice(1).state is SliceState.ENDING
    assert world.memory.slice(1).reason == "goes within 24 s: host 0 got SIGTERM"
    going = Going(1, 1, world.now + 24.0, "host 0 got SIGTERM")
    assert world.announced == Notices("run", 1, going=(going,))
    assert not world.look(view, 5.0).notes
    assert world.memory.slice(1).reason == "goes within 19 s: host 0 got SIGTERM"
    assert world.announced == Notices("run", 1, going=(going,))


def test_a_slice_whose_data_is_saved_is_suspended_and_comes_back_free_of_budget() -> None:
    world = World(replace(RULES, slice_budget=(0, 600.0)))
    view = _given_notice(world)
    plan = world.look(_gone(view, world.now + 24.0))
    assert plan.actions == rerun(1)
    assert reasons(plan) == [Reason.SliceGone, Reason.SlicePending]
    assert plan.notes[0].message == (
        "slice 1 went after notice (host 0 got SIGTERM): its data is saved"
    )
    assert world.memory.slice(1).reason == "went after notice: its data is saved; requeued"
    assert world.announced is not None
    assert world.announced.going == ()
    waiting = replace(running(1, 2), state=TaskState.PENDING, nodes=())
    world.look(replace(view, tasks=(running(0), waiting, running(2)), silent=all_answer([0, 2])))
    assert world.memory.slice(1).state is SliceState.PENDING
    assert world.memory.slice(1).reason == "went after notice: its data is saved; waits for nodes"
    back = replace(
        view,
        tasks=(running(0), running(1, 2), running(2)),
        report=report(SliceReport(1, 2, alive=True)),
    )
    assert reasons(world.look(back)) == [Reason.SliceReady]
    assert world.announced.back == (Back(1, 2, world.now),)
    assert not world.memory.slice(1).failures
    first = world.announced
    world.look(back, 50.0)
    assert world.announced == first


@pytest.mark.parametrize("state", [TaskState.COMPLETED, TaskState.FAILED, TaskState.NODE_FAIL])
def test_a_slice_that_goes_without_its_data_is_lost_and_still_costs_no_budget(
    state: TaskState,
) -> None:
    world = World(replace(RULES, slice_budget=(0, 600.0)))
    view = _gone(_given_notice(world), world.now + 24.0, released=False)
    view = replace(view, tasks=(running(0), ended(1, state), running(2)))
    plan = world.look(view)
    assert plan.actions == rerun(1)
    assert reasons(plan) == [Reason.SliceLost, Reason.SlicePending]
    assert plan.notes[0].message == (
        "slice 1 lost after notice (host 0 got SIGTERM): host 0 ended by signal 9 (resource "
        "manager: host 0 ended: connection closed)"
    )
    assert "went after notice (host 0 got SIGTERM); requeued" in plan.notes[1].message


def test_notice_and_end_between_two_looks_are_no_loss_either() -> None:
    world = World()
    plan = world.look(_gone(world.ready(), world.now + 24.0))
    assert plan.actions == rerun(1)
    assert reasons(plan) == [Reason.SliceGone, Reason.SlicePending]
    assert not world.memory.slice(1).failures


def test_whether_a_run_that_has_ended_was_released_is_waited_for() -> None:
    world = World()
    view = _given_notice(world)
    deadline = world.now + 24.0
    tasks = (running(0), ended(1, TaskState.COMPLETED), running(2))
    behind = replace(view, tasks=tasks, silent=all_answer([0, 2]))
    plan = world.look(behind, 0.2)
    assert (plan.actions, plan.notes) == ((), ())
    assert reasons(world.look(_gone(view, deadline), 0.2))[0] is Reason.SliceGone


def test_a_resource_manager_that_does_not_say_it_is_not_waited_for_long() -> None:
    world = World()
    view = _given_notice(world)
    tasks = (running(0), ended(1, TaskState.COMPLETED), running(2))
    behind = replace(view, tasks=tasks, silent=all_answer([0, 2]))
    plans = [world.look(behind, 0.5) for _ in range(5)]
    assert [len(plan.actions) for plan in plans] == [0, 0, 0, 0, 2]
    assert reasons(plans[-1])[0] is Reason.SliceLost


def test_a_slice_that_was_requeued_by_its_scheduler_meanwhile_went_after_notice() -> None:
    world = World()
    view = _given_notice(world)
    waiting = replace(running(1, 2), state=TaskState.PENDING, nodes=())
    plan = world.look(
        replace(view, tasks=(running(0), waiting, running(2)), silent=all_answer([0, 2]))
    )
    assert not plan.actions
    assert reasons(plan) == [Reason.SliceLost, Reason.SlicePending]
    assert "lost after notice" in plan.notes[0].message


def test_a_slice_is_released_once_its_programs_have_left_it() -> None:
    world = World()
    view = _given_notice(world)
    assert world.orders == Orders()
    world.acknowledged = frozenset({(1, 1), (0, 1), (2, 7)})
    plan = world.look(view)
    assert reasons(plan) == [Reason.SliceAcknowledged]
    left = SliceOrder(1, 1, "its programs have left it")
    assert world.orders == Orders(released=(left,))
    assert not world.look(view).notes
    told = report(noticed(1, world.now, alive=False, released=True, reason=left.reason))
    plan = world.look(replace(_gone(view, world.now), report=told))
    assert plan.actions == rerun(1)
    assert world.memory.slice(1).reason == "went after notice: its programs have left it; requeued"
    assert world.orders == Orders()
    assert world.acknowledged == {(0, 1), (2, 7)}, "of runs that are not over"


def test_an_answer_without_a_notice_ends_nothing() -> None:
    world = World()
    view = world.ready()
    world.acknowledged = frozenset({(1, 1)})
    world.look(replace(view, report=report()))
    assert world.orders == Orders()
    assert world.acknowledged == {(1, 1)}


def test_a_released_run_that_does_not_end_is_ended() -> None:
    world = World()
    view = _given_notice(world)
    told = report(noticed(1, world.now + 24.0, alive=False, reason=SAVED, released=True))
    for _ in range(5):
        assert not world.look(replace(view, report=told)).actions
    assert world.memory.slice(1).reason == "its data is saved; its processes are ending"
    assert world.look(replace(view, report=told)).actions == (Requeue("7_1", 1),)
    assert not world.memory.slice(1).failures


def test_whoever_waits_for_a_slice_is_told_that_it_will_not_come_back() -> None:
    world = World(replace(RULES, slice_budget=(0, 600.0)))
    view = world.ready()
    tasks = (ended(0), running(1), ended(2, TaskState.CANCELLED))
    world.look(replace(view, tasks=tasks, silent=all_answer([1])))
    gone = world.orders.abandoned
    assert [(order.index, order.incarnation) for order in gone] == [(0, 1), (2, 1)]
    assert gone[0].reason.startswith("failed: host 0 ended by signal 9; its crash restart budget")
    assert gone[1].reason == "cancelled: host 0 ended by signal 9"


def test_a_slice_that_is_lost_is_back_when_its_next_run_is_ready() -> None:
    world = World()
    view = world.ready()
    assert world.announced == Notices("run")
    world.look(replace(view, tasks=(running(0), ended(1), running(2)), silent=all_answer([0, 2])))
    world.look(replace(view, tasks=(running(0), running(1, 2), running(2))))
    assert world.announced == Notices("run", 1, back=(Back(1, 2, world.now),))
    first = world.announced
    world.look(replace(view, tasks=(running(0), running(1, 2), running(2)), silent={1: (0,)}))
    assert world.announced == first, "it may just be slow"
    lost = replace(ended(1), incarnation=2)
    world.look(replace(view, tasks=(running(0), lost, running(2)), silent=all_answer([0, 2])))
    assert world.announced == Notices("run", 2)


def test_a_notice_of_another_run_says_nothing() -> None:
    world = World()
    view = world.ready()
    world.look(replace(view, report=report(noticed(1, world.now + 25.0, incarnation=2))))
    assert world.memory.slice(1).state is SliceState.READY
    assert world.announced == Notices("run")


def test_what_is_damaged_or_gone_is_written_again() -> None:
    world = World()
    view = _given_notice(world)
    before = world.announced
    world.announced = None
    world.orders = Orders(shutdown="somebody else's")
    world.look(view)
    assert (world.announced, world.orders) == (before, Orders())
