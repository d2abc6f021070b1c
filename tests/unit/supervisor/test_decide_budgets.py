# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Restart budgets of slices: one of each cause, and what follows once one has run out."""

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
)

from pathways_slurm.causes import Cause, OnBudget, cause_of
from pathways_slurm.decide_stop import EXIT_FAILED
from pathways_slurm.events import Reason
from pathways_slurm.model import Observation, Rules
from pathways_slurm.plan import Plan, Submit
from pathways_slurm.runtime_files import EndKind, FirstEnd, SliceReport
from pathways_slurm.scheduler.base import Task
from pathways_slurm.states import ServicePhase, SliceState, TaskState


def _held(reason: str) -> Task:
    return replace(running(1, 2), state=TaskState.HELD, reason=reason)


def _one_ended(view: Observation, task: Task) -> Observation:
    return replace(view, tasks=(running(0), task, running(2)), silent=all_answer([0, 2]))


def _fail(world: World, view: Observation, incarnation: int, after_s: float = 100.0) -> Plan:
    task = replace(ended(1), incarnation=incarnation, exit_code=1)
    return world.look(_one_ended(view, task), after_s)


@pytest.mark.parametrize(
    ("task", "end", "cause"),
    [
        (ended(1, signal=9), None, Cause.CRASH),
        (ended(1, exit_code=3), None, Cause.CRASH),
        (ended(1, TaskState.COMPLETED, exit_code=0), None, Cause.EXIT),
        (ended(1, exit_code=0), None, Cause.EXIT),
        (running(1), None, Cause.HANG),
        (ended(1, exit_code=4), FirstEnd(0, EndKind.SILENT), Cause.HANG),
        (ended(1, exit_code=4), FirstEnd(0, EndKind.LEFT), Cause.EXIT),
        (ended(1, exit_code=4), FirstEnd(0, EndKind.BROKEN), Cause.CRASH),
        (replace(ended(1), reason="JobLaunchFailure"), None, Cause.LAUNCH),
        (replace(ended(1), reason="NodeDown"), FirstEnd(0, EndKind.SILENT), Cause.NODE),
        (ended(1, TaskState.NODE_FAIL), None, Cause.NODE),
        (ended(1, TaskState.TIMEOUT), None, Cause.TIME_LIMIT),
        (_held("launch failed requeued held"), None, Cause.LAUNCH),
        (_held("launch failure limit exceeded requeued held"), None, Cause.LAUNCH),
        (_held("job requeued in special exit state"), None, Cause.CRASH),
    ],
)
def test_what_an_end_is_counted_as(task: Task, end: FirstEnd | None, cause: Cause) -> None:
    assert cause_of(task, end) is cause


def test_each_cause_has_a_budget_of_its_own() -> None:
    world = World(replace(RULES, budgets={Cause.CRASH: (1, 600.0)}))
    view = world.ready()
    _fail(world, view, 1)
    limit = replace(ended(1, TaskState.TIMEOUT), incarnation=2)
    for incarnation in (2, 3):
        plan = world.look(_one_ended(view, replace(limit, incarnation=incarnation)), 100.0)
        assert plan.actions == rerun(1)
    spent = world.memory.slice(1).spent
    assert {cause: len(times) for cause, times in spent.items()} == {
        Cause.CRASH: 1,
        Cause.TIME_LIMIT: 2,
    }
    assert not _fail(world, view, 4).actions
    kept = world.memory.slice(1)
    assert (kept.state, kept.exhausted) == (SliceState.FAILED, Cause.CRASH)
    assert "its crash restart budget has run out (1 of 1 used in the last 600 s)" in kept.reason


def test_failures_in_turns_back_off_like_those_of_one_cause() -> None:
    world = World()
    view = world.ready()
    _fail(world, view, 1)
    limit = replace(ended(1, TaskState.TIMEOUT), incarnation=2)
    assert not world.look(_one_ended(view, limit), 0.5).actions
    assert world.look(_one_ended(view, limit), 0.6).actions == rerun(1)


def test_a_slice_that_was_given_up_stays_so_when_the_window_has_passed() -> None:
    world = World(replace(RULES, slice_budget=(0, 60.0)))
    view = world.ready()
    for _ in range(10):
        assert not _fail(world, view, 1).actions
    assert world.memory.slice(1).state is SliceState.FAILED
    assert world.memory.phase is ServicePhase.READY, "two slices are enough"


@pytest.mark.parametrize("state", [TaskState.FAILED, TaskState.CANCELLED])
def test_what_is_down_for_good_stays_so_when_the_scheduler_has_forgotten_it(
    state: TaskState,
) -> None:
    world = World(replace(RULES, slice_budget=(0, 60.0)))
    view = world.ready()
    world.look(_one_ended(view, ended(1, state)))
    kept = world.memory.slice(1)
    for _ in range(10):
        assert not world.look(replace(view, tasks=(running(0), running(2))), 100.0).actions
    assert world.memory.slice(1).state is kept.state
    assert world.memory.slice(1).reason == kept.reason


def _wait_rules(limit: int) -> Rules:
    return replace(RULES, slice_budget=(limit, 600.0), on_budget=OnBudget.WAIT)


def test_with_wait_a_slice_is_tried_again_once_the_window_has_passed() -> None:
    world = World(_wait_rules(1))
    view = world.ready()
    _fail(world, view, 1)
    plan = _fail(world, view, 2)
    assert not plan.actions
    assert reasons(plan) == [Reason.BudgetExhausted, Reason.SlicePending]
    assert world.memory.slice(1).state is SliceState.PENDING
    assert "1 of 1 used in the last 600 s); it is tried again" in world.memory.slice(1).reason
    assert not _fail(world, view, 2, 499.0).notes
    assert _fail(world, view, 2, 2.0).actions == rerun(1)


def test_with_wait_a_slice_that_the_scheduler_forgets_meanwhile_waits_on() -> None:
    world = World(_wait_rules(1))
    view = world.ready()
    _fail(world, view, 1)
    _fail(world, view, 2, 10.0)
    absent = replace(view, tasks=(running(0), running(2)))
    for _ in range(5):
        assert not world.look(absent, 100.0).actions
    assert "crash restart budget has run out" in world.memory.slice(1).reason
    plan = world.look(absent, 100.0)
    (submit,) = [a for a in plan.actions if isinstance(a, Submit)]
    assert submit.submission.indices == (1,)


def test_with_wait_a_hung_slice_is_not_ended_before_it_may_be_started_over() -> None:
    world = World(_wait_rules(0))
    view = replace(world.ready(), silent={0: (), 1: (0,), 2: ()})
    for _ in range(30):
        assert not world.look(view).actions
    assert world.memory.slice(1).state is SliceState.UNREACHABLE
    assert "its hang restart budget has run out" in world.memory.slice(1).reason


def test_with_service_the_first_budget_that_runs_out_ends_it_with_the_reason() -> None:
    world = World(replace(RULES, slice_budget=(0, 600.0), on_budget=OnBudget.SERVICE))
    view = world.ready()
    plan = _fail(world, view, 1)
    assert plan.memory.phase is ServicePhase.STOPPING
    assert plan.memory.exit_code == EXIT_FAILED
    assert "slice 1: host 0 ended by signal 9; its crash restart budget" in plan.memory.reason
    assert "(PATHWAYS_ON_BUDGET=service)" in plan.memory.reason


def test_a_slice_that_keeps_vanishing_is_not_submitted_for_ever() -> None:
    world = World(replace(RULES, budgets={Cause.MISSING: (2, 1e6)}))
    view = world.ready()
    absent = replace(view, tasks=(running(0), running(2)))
    submissions = 0
    for _ in range(1000):
        submissions += sum(isinstance(a, Submit) for a in world.look(absent, 10.0).actions)
    assert submissions == 2
    assert world.memory.slice(1).state is SliceState.FAILED
    assert "its missing restart budget has run out (2 of 2" in world.memory.slice(1).reason


def test_a_users_hold_is_an_order() -> None:
    world = World()
    view = world.ready()
    held = replace(running(1), state=TaskState.HELD, reason="JobHeldUser")
    assert not world.look(_one_ended(view, held)).actions
    assert not world.memory.slice(1).failures
    assert "waits for scontrol release 7_1" in world.memory.slice(1).reason


def test_a_run_that_is_over_by_the_word_of_silence_counts_as_a_hang() -> None:
    world = World()
    view = world.ready()
    silent = FirstEnd(0, EndKind.SILENT)
    words = "host 0 lost: silent for more than 10 s"
    told = SliceReport(1, 1, alive=False, reason=words, end=silent)
    followed = ended(1, exit_code=4)
    world.look(replace(_one_ended(view, followed), report=report(told)))
    assert list(world.memory.slice(1).spent) == [Cause.HANG]
    assert world.memory.slice(1).reason == f"{words}; requeued"


def test_a_run_that_fails_to_start_is_counted_whatever_notice_its_other_hosts_got() -> None:
    """srun tells the hosts that are left by a SIGTERM, and they pass that on as a notice."""
    world = World()
    view = world.ready()
    _fail(world, view, 1)
    waiting = noticed(1, world.now + 4.0, incarnation=2, alive=False, released=True, reason="empty")
    told = replace(view, report=report(waiting))
    world.look(_one_ended(told, running(1, 2)), 0.1)
    failed = replace(ended(1, exit_code=1), incarnation=2, restarts=1)
    assert not world.look(_one_ended(told, failed), 0.1).actions, "it backs off"
    assert world.look(_one_ended(told, failed), 5.0).actions == rerun(1)
    assert len(world.memory.slice(1).spent[Cause.CRASH]) == 2
    assert world.memory.slice(1).reason == "host 0 ended by signal 9; requeued"
    preempted = replace(failed, preempted=True, incarnation=3)
    waiting = replace(waiting, incarnation=3)
    world.look(_one_ended(replace(view, report=report(waiting)), preempted), 0.1)
    assert len(world.memory.slice(1).spent[Cause.CRASH]) == 2
    assert "preempted, went after notice" in world.memory.slice(1).reason


# Slurm has most often counted a restart when it holds a task, but not if no run went before.
@pytest.mark.parametrize("restarts", [0, 1])
def test_the_crash_of_a_run_that_was_held_before_is_counted(restarts: int) -> None:
    world = World()
    view = world.ready()
    held = replace(_held("launch failed requeued held"), restarts=restarts)
    run = replace(running(1, 2), restarts=restarts)
    world.look(_one_ended(view, held))
    world.look(replace(view, tasks=(running(0), run, running(2))))
    crashed = replace(ended(1, signal=9), incarnation=2, restarts=restarts)
    world.look(_one_ended(view, crashed), 100.0)
    spent = world.memory.slice(1).spent
    assert {cause: len(times) for cause, times in spent.items()} == {
        Cause.LAUNCH: 1,
        Cause.CRASH: 1,
    }


def test_a_requeue_by_an_administrator_costs_nothing() -> None:
    world = World()
    view = world.ready()
    for run in range(2, 50):
        waits = replace(running(1, run), state=TaskState.PENDING, reason="BeginTime")
        world.look(_one_ended(view, waits))
        world.look(replace(view, tasks=(running(0), running(1, run), running(2))))
    assert world.memory.slice(1).state is SliceState.READY
    assert not world.memory.slice(1).spent
