# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What is decided about a slice."""

from dataclasses import replace

import pytest
from tests.unit.supervisor.world import (
    RULES,
    World,
    all_answer,
    ended,
    kinds,
    reasons,
    report,
    running,
    seen,
)

from pathways_slurm.events import Reason
from pathways_slurm.model import Observation
from pathways_slurm.plan import Cancel, Plan, Release, Requeue, Submit
from pathways_slurm.runtime_files import Report, SliceReport
from pathways_slurm.scheduler.base import Node, Task
from pathways_slurm.states import ServicePhase, SliceState, TaskState


def test_a_failed_slice_is_requeued_at_once_and_counted_once() -> None:
    world = World()
    view = world.ready()
    broken = replace(view, tasks=(running(0), ended(1), running(2)), silent=all_answer([0, 2]))
    plan = world.look(broken)
    assert Requeue("7_1", 1) in plan.actions
    assert reasons(plan) == [Reason.SliceLost, Reason.SliceRequeued]
    assert "signal 9" in plan.notes[0].message
    again = world.look(broken)
    assert Requeue("7_1", 1) in again.actions, "the order may not have got through"
    assert not again.notes
    assert len(world.memory.slice(1).failures) == 1


def test_a_slice_that_is_back_is_ready_under_its_new_incarnation() -> None:
    world = World()
    view = world.ready()
    world.look(replace(view, tasks=(running(0), ended(1), running(2))))
    plan = world.look(replace(view, tasks=(running(0), running(1, 2), running(2))))
    assert reasons(plan) == [Reason.SliceReady]
    assert world.memory.slice(1).incarnation == 2
    assert world.memory.phase is ServicePhase.READY


def test_hosts_that_an_earlier_run_has_left_do_not_make_the_next_one_ready() -> None:
    world = World()
    view = world.ready()
    world.look(replace(view, tasks=(running(0), ended(1), running(2))))
    begun = replace(view, tasks=(running(0), running(1, 2), running(2)))
    world.look(replace(begun, report=report(SliceReport(1, 1, alive=True))))
    assert world.memory.slice(1).state is SliceState.STARTING
    assert "left from an earlier run (incarnation 1)" in world.memory.slice(1).reason
    world.look(replace(begun, report=report(SliceReport(1, 2, alive=True))))
    assert world.memory.slice(1).state is SliceState.READY


def test_a_restart_between_two_looks_is_still_a_loss() -> None:
    world = World()
    view = world.ready()
    plan = world.look(replace(view, tasks=(running(0), running(1, 2), running(2))))
    assert reasons(plan) == [Reason.SliceLost, Reason.SliceReady]


@pytest.mark.parametrize("state", [TaskState.COMPLETED, TaskState.NODE_FAIL, TaskState.TIMEOUT])
def test_every_end_that_nobody_ordered_is_requeued(state: TaskState) -> None:
    world = World()
    view = world.ready()
    plan = world.look(replace(view, tasks=(running(0), ended(1, state), running(2))))
    assert Requeue("7_1", 1) in plan.actions


def test_a_cancelled_slice_is_left_cancelled() -> None:
    world = World()
    view = world.ready()
    plan = world.look(replace(view, tasks=(running(0), ended(1, TaskState.CANCELLED), running(2))))
    assert not plan.actions
    assert reasons(plan) == [Reason.SliceLost, Reason.SliceCancelled]
    assert world.memory.slice(1).state is SliceState.CANCELLED


@pytest.mark.parametrize("state", [TaskState.COMPLETED, TaskState.FAILED])
def test_preemption_costs_no_budget(state: TaskState) -> None:
    world = World()
    view = world.ready()
    for _ in range(5 * RULES.slice_budget[0]):
        preempted = replace(ended(1, state), preempted=True)
        plan = world.look(replace(view, tasks=(running(0), preempted, running(2))))
        assert Requeue("7_1", 1) in plan.actions
    assert not world.memory.slice(1).failures


def test_a_held_task_is_released() -> None:
    world = World()
    view = world.ready()
    held = replace(running(1), state=TaskState.HELD, reason="launch failed requeued held")
    plan = world.look(replace(view, tasks=(running(0), held, running(2))))
    assert Release("7_1", 1) in plan.actions
    assert Reason.SliceReleased in reasons(plan)


def test_the_wait_of_a_requeued_task_is_lifted_and_that_of_a_first_run_is_not() -> None:
    world = World()
    view = world.ready()
    waits = replace(running(1, 2), state=TaskState.PENDING, reason="BeginTime")
    plan = world.look(replace(view, tasks=(running(0), waits, running(2))))
    assert plan.actions == (Release("7_1", 1),)
    first = World()
    first.look(seen())
    waits = replace(running(1), state=TaskState.PENDING, reason="BeginTime")
    assert not first.look(seen(running(0), waits, running(2))).actions


def test_a_crash_loop_backs_off_and_stops_when_its_budget_is_spent() -> None:
    world = World()
    view = world.ready()
    orders = 0
    for incarnation in range(1, 9):
        task = replace(ended(1), incarnation=incarnation)
        for _ in range(30):
            plan = world.look(replace(view, tasks=(running(0), task, running(2))))
            orders += Reason.SliceRequeued in reasons(plan)
    assert orders == RULES.slice_budget[0]
    assert world.memory.slice(1).state is SliceState.FAILED
    assert "3 of 3 used in the last 600 s" in world.memory.slice(1).reason
    assert world.memory.phase is ServicePhase.READY, "two slices are enough"


def test_the_second_try_waits_longer_than_the_first() -> None:
    world = World()
    view = world.ready()
    world.look(replace(view, tasks=(running(0), ended(1), running(2))))
    second = replace(ended(1), incarnation=2)
    assert not world.look(replace(view, tasks=(running(0), second, running(2))), 0.5).actions
    later = world.look(replace(view, tasks=(running(0), second, running(2))), 0.6)
    assert Requeue("7_1", 1) in later.actions


def test_a_host_that_falls_silent_is_named_and_its_slice_is_not_taken_for_lost() -> None:
    world = World()
    view = world.ready()
    plan = world.look(replace(view, silent={0: (), 1: (0,), 2: ()}))
    assert reasons(plan) == [Reason.SliceUnreachable]
    assert not plan.actions
    assert "host 0 (n1) has stopped answering on its port" in plan.notes[0].message
    assert world.memory.slice(1).state is SliceState.UNREACHABLE
    assert reasons(world.look(view)) == [Reason.SliceReady]


def test_a_silent_host_whose_run_then_ends_is_lost_for_the_reason_of_its_end() -> None:
    world = World()
    view = world.ready()
    world.look(replace(view, silent={0: (), 1: (0,), 2: ()}))
    plan = world.look(
        replace(view, tasks=(running(0), ended(1), running(2)), silent={0: (), 2: ()})
    )
    assert reasons(plan) == [Reason.SliceLost, Reason.SliceRequeued]
    assert plan.notes[0].message == "slice 1 lost: host 0 ended by signal 9"


def test_pending_is_alive() -> None:
    world = World()
    world.look(seen())
    waiting = [replace(running(i), state=TaskState.PENDING, reason="Resources") for i in range(3)]
    for _ in range(1000):
        plan = world.look(seen(*waiting), 60.0)
        assert not plan.actions
    assert world.memory.slice(0).reason == "Resources"


def test_an_unknown_word_is_no_end() -> None:
    world = World()
    view = world.ready()
    odd = replace(running(1), state=TaskState.UNKNOWN, reason="WARP_DRIVE")
    plan = world.look(replace(view, tasks=(running(0), odd, running(2))))
    assert not plan.actions
    assert world.memory.slice(1).state is SliceState.UNKNOWN


def test_a_task_gone_from_the_books_is_submitted_again_with_a_newer_incarnation() -> None:
    world = World()
    view = world.ready()
    absent = replace(view, tasks=(running(0), running(2)))
    assert not world.look(absent).actions
    assert not world.look(absent, RULES.missing_grace_s / 2).actions
    plan = world.look(absent, RULES.missing_grace_s)
    (submit,) = [a for a in plan.actions if isinstance(a, Submit)]
    assert submit.submission.indices == (1,)
    assert submit.submission.first_incarnation == 2
    assert submit.submission.tag != world.memory.submissions[0].tag
    assert Submit not in kinds(world.look(absent, 0.1)), "its new task may not be listed yet"


def test_a_slice_whose_task_is_absent_is_not_called_ready() -> None:
    world = World()
    absent = replace(world.ready(), tasks=(running(0), running(2)))
    assert not world.look(absent).notes
    assert world.memory.slice(1).state is SliceState.UNKNOWN
    assert "absent from the scheduler's answers" in world.memory.slice(1).reason
    everyone = replace(absent, tasks=tuple(map(running, range(3))))
    assert reasons(world.look(everyone)) == [Reason.SliceReady]


@pytest.mark.parametrize("older", [running(1), ended(1)])
def test_a_restart_that_the_scheduler_has_forgotten_is_made_good(older: Task) -> None:
    """slurmctld, killed, may come back with the state before a requeue."""
    world = World()
    renewed = replace(world.ready(), tasks=(running(0), running(1, 2), running(2)))
    world.look(renewed)
    assert world.memory.slice(1).incarnation == 2
    forgetful = replace(renewed, tasks=(running(0), older, running(2)))
    assert not world.look(forgetful).actions
    assert world.memory.slice(1).state is SliceState.UNKNOWN
    assert "no newer run of it than 1" in world.memory.slice(1).reason
    plan = world.look(forgetful, RULES.missing_grace_s)
    if not older.state.ended:
        assert plan.actions == (Cancel(("7_1",)),), "only one task of a slice may live"
        over = replace(forgetful, tasks=(running(0), ended(1, TaskState.CANCELLED), running(2)))
        plan = world.look(over)
    (submit,) = [a for a in plan.actions if isinstance(a, Submit)]
    assert (submit.submission.indices, submit.submission.first_incarnation) == ((1,), 3)
    assert reasons(plan)[0] is Reason.SliceLost


def _look_on(world: World, view: Observation, seconds: int) -> Plan:
    for _ in range(seconds):
        plan = world.look(view, 1.0)
    return plan


def test_a_slice_that_stays_silent_is_lost_and_requeued_within_its_budget() -> None:
    world = World()
    nodes = (Node("n1a", "127.0.2.1"), Node("n1b", "127.0.2.2"))
    wide = replace(running(1), nodes=nodes)
    view = replace(world.ready(), tasks=(running(0), wide, running(2)))
    silent = replace(view, silent={0: (), 1: (1,), 2: ()})
    assert not _look_on(world, silent, 10).actions
    plan = world.look(silent)
    assert plan.actions == (Requeue("7_1", 1),)
    assert reasons(plan) == [Reason.SliceLost, Reason.SliceRequeued]
    assert plan.notes[0].message == "slice 1 lost: host 1 (n1b) has been silent for 10 s; requeued"
    assert len(world.memory.slice(1).failures) == 1
    again = world.look(silent)
    assert again.actions == (Requeue("7_1", 1),), "the order may not have got through"
    assert not again.notes
    assert len(world.memory.slice(1).failures) == 1


def test_a_host_that_is_slow_now_and_then_costs_nothing() -> None:
    world = World()
    view = world.ready()
    for _ in range(10):
        assert not _look_on(world, replace(view, silent={0: (), 1: (0,), 2: ()}), 9).actions
        assert not world.look(view).actions
    assert world.memory.slice(1).state is SliceState.READY
    assert not world.memory.slice(1).failures


def test_silence_that_two_looks_saw_is_not_acted_on() -> None:
    world = World()
    view = world.ready()
    silent = replace(view, silent={0: (), 1: (0,), 2: ()})
    world.look(silent)
    assert not world.look(silent, 11.0).actions
    assert Requeue("7_1", 1) in world.look(silent, 1.0).actions


def test_a_slice_that_was_never_ready_is_not_lost_by_silence() -> None:
    world = World()
    world.look(seen())
    silent = replace(seen(*map(running, range(3))), silent={0: (0,), 1: (0,), 2: (0,)})
    assert not _look_on(world, silent, 60).actions
    assert world.memory.slice(1).state is SliceState.STARTING


def test_a_silent_slice_without_a_budget_is_ended_for_good() -> None:
    world = World(replace(RULES, slice_budget=(0, 600.0)))
    view = world.ready()
    plan = _look_on(world, replace(view, silent={0: (), 1: (0,), 2: ()}), 11)
    assert plan.actions == (Cancel(("7_1",)),)
    assert world.memory.slice(1).state is SliceState.FAILED
    world.look(replace(view, tasks=(running(0), ended(1, TaskState.CANCELLED), running(2))))
    assert world.memory.slice(1).state is SliceState.FAILED
    assert "silent for 10 s; its hang restart budget has run out" in world.memory.slice(1).reason


OVER = SliceReport(1, 1, alive=False, reason="host 0 lost: silent for more than 2 s")


def test_a_run_that_the_resource_manager_says_is_over_is_requeued_if_it_does_not_end() -> None:
    world = World()
    view = replace(world.ready(), report=report(OVER))
    assert not world.look(view).actions
    assert world.memory.slice(1).state is SliceState.UNREACHABLE
    assert "its run is over: host 0 lost: silent" in world.memory.slice(1).reason
    assert not _look_on(world, view, 4).actions, "it may just be ending"
    plan = world.look(view)
    assert plan.actions == (Requeue("7_1", 1),)
    assert "host 0 lost: silent for more than 2 s; requeued" in plan.notes[0].message


@pytest.mark.parametrize(
    "told",
    [
        report(OVER, settled=False),
        report(replace(OVER, incarnation=0)),
        report(replace(OVER, alive=True, reason="")),
        None,
    ],
)
def test_what_the_resource_manager_does_not_know_is_no_end(told: Report | None) -> None:
    world = World()
    view = replace(world.ready(), report=told)
    assert not _look_on(world, view, 60).actions
    assert world.memory.slice(1).state is SliceState.READY


def test_who_can_not_be_reached_is_not_ready_whatever_the_resource_manager_says() -> None:
    world = World()
    view = replace(world.ready(), report=report())
    world.look(replace(view, silent={0: (), 1: (0,), 2: ()}))
    assert world.memory.slice(1).state is SliceState.UNREACHABLE


def test_a_silent_scheduler_is_no_silence_of_slices() -> None:
    world = World()
    view = world.ready()
    world.look(replace(view, silent={0: (), 1: (0,), 2: ()}))
    for _ in range(100):
        world.look(replace(view, tasks=None, stale_reason="timed out", silent={}))
    silent = replace(view, silent={0: (), 1: (0,), 2: ()})
    assert not _look_on(world, silent, 5).actions


def test_a_host_that_ended_because_another_was_silent_is_not_all_that_is_said() -> None:
    world = World()
    view = world.ready()
    followed = replace(ended(1), reason="host 1 exited with code 4")
    tasks = (running(0), followed, running(2))
    plan = world.look(replace(view, tasks=tasks, silent=all_answer([0, 2]), report=report(OVER)))
    assert plan.notes[0].message == (
        "slice 1 lost: host 1 exited with code 4 (resource manager: host 0 lost: silent for more "
        "than 2 s)"
    )
