# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The service's decisions, told as tables of what is seen and what is done about it."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest

from pathways_slurm.decide import decide
from pathways_slurm.decide_stop import KILL_AFTER_S, STOP_DEADLINE_S
from pathways_slurm.events import Reason
from pathways_slurm.model import (
    Action,
    Cancel,
    Component,
    ComponentView,
    Memory,
    Observation,
    Plan,
    Publish,
    Release,
    Requeue,
    Rules,
    StartComponent,
    StopComponent,
    Submit,
    Withdraw,
)
from pathways_slurm.scheduler.base import Node, Task
from pathways_slurm.states import ServicePhase, SliceState, TaskState

RULES = Rules(min_slices=2, max_slices=3, component_budget=(2, 600.0), slice_budget=(3, 600.0))
UP = ComponentView(alive=True, answers=True)
STARTING = ComponentView(alive=True, answers=False)
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


def ended(index: int, state: TaskState = TaskState.FAILED, **fields: object) -> Task:
    return replace(running(index), state=state, reason="host 0 ended by signal 9", **fields)  # type: ignore[arg-type]  # fields of Task, checked by replace itself


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


class World:
    """Carries memory from one plan to the next, as the service does."""

    def __init__(self, rules: Rules = RULES) -> None:
        self.rules = rules
        self.memory = Memory("run")
        self.now = 1000.0

    def look(self, observation: Observation, after_s: float = 1.0) -> Plan:
        self.now += after_s
        plan = decide(self.rules, self.memory, observation, self.now)
        self.memory = plan.memory
        for action in plan.actions:
            if isinstance(action, Submit):
                self.memory = self.memory.with_array(action.submission.tag, "7")
        return plan

    def ready(self) -> Observation:
        """Brings all slices up, and returns what is seen then."""
        self.look(seen(rm=KILLED, proxy=KILLED))
        self.look(seen(proxy=KILLED))
        everything = seen(*map(running, range(3)), answering=range(3))
        self.look(everything)
        published = replace(everything, published=True)
        self.look(published)
        return published


def kinds(plan: Plan) -> list[type[Action]]:
    return [type(action) for action in plan.actions]


def reasons(plan: Plan) -> list[Reason]:
    return [note.reason for note in plan.notes]


def test_the_first_look_starts_the_rm_and_submits_every_slice_in_one_array() -> None:
    plan = World().look(seen(rm=ComponentView(False, False), proxy=ComponentView(False, False)))
    assert plan.actions[0] == StartComponent(Component.RM)
    assert isinstance(plan.actions[1], Submit)
    assert plan.actions[1].submission.indices == (0, 1, 2)
    assert plan.actions[1].submission.first_incarnation == 1
    assert len(plan.actions) == 2, "the proxy waits for the resource manager"


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
    everything = seen(*map(running, range(3)), answering=range(3), proxy=STARTING)
    assert Publish not in kinds(world.look(everything))


def test_a_slice_lost_below_min_slices_does_not_withdraw_the_address() -> None:
    world = World()
    view = world.ready()
    plan = world.look(replace(view, tasks=(running(0), ended(1), ended(2))))
    assert Withdraw not in kinds(plan)
    assert plan.memory.phase is ServicePhase.DEGRADED


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


def test_a_restart_between_two_looks_is_still_a_loss() -> None:
    world = World()
    view = world.ready()
    plan = world.look(replace(view, tasks=(running(0), running(1, 2), running(2))))
    assert reasons(plan) == [Reason.SliceLost, Reason.SliceReady]


def test_an_older_record_of_a_slice_says_nothing() -> None:
    world = World()
    view = world.ready()
    world.look(replace(view, tasks=(running(0), running(1, 2), running(2))))
    plan = world.look(replace(view, tasks=(running(0), ended(1), running(2))))
    assert not plan.actions
    assert world.memory.slice(1).state is SliceState.READY


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


def test_a_silent_scheduler_changes_nothing_and_is_said_once() -> None:
    world = World()
    view = world.ready()
    stale = replace(view, tasks=None, stale_reason="timed out", silent={})
    first, second = world.look(stale), world.look(stale)
    assert (reasons(first), reasons(second)) == ([Reason.SchedulerUnavailable], [])
    assert not first.actions
    assert all(s.state is SliceState.READY for s in world.memory.slices.values())
    assert reasons(world.look(view)) == [Reason.SchedulerAnswersAgain]


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
    hung = replace(view, components={**view.components, Component.PROXY: STARTING})
    assert Withdraw not in kinds(world.look(hung))
    assert Withdraw in kinds(world.look(hung, 20.0))


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
    half = seen(*cancelled, rm=KILLED, proxy=STARTING)
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
