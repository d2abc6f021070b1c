# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What holds at every look, whatever happens between two of them; and that it gets well again."""

import tempfile
from collections import Counter
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.supervisor.simulation import SCHEDULERS_OWN, SimTask, Simulation

from pathways_slurm.causes import Cause, OnBudget
from pathways_slurm.model import Observation, Rules
from pathways_slurm.states import SliceState, TaskState

SLICES = 3
RULES = Rules(
    min_slices=1,
    max_slices=SLICES,
    slice_budget=(3, 300.0),
    budgets={Cause.MISSING: (2, 300.0)},
    tick_s=5.0,
)

TASK_FAULTS = ("crash", "exit", "hang", "preempt", "admin", "hold", "notice", "limit", "vanish")
# Most things befall one slice, so that its budgets run out.
SLICE = st.sampled_from((0, 0, 0, 1, 2))
ON_TASKS = st.tuples(st.sampled_from(TASK_FAULTS), SLICE)
FAULTS = st.one_of(
    ON_TASKS,
    ON_TASKS,
    ON_TASKS,
    st.tuples(st.just("hide"), SLICE),
    st.tuples(st.just("cancel"), st.sampled_from((1, 2))),
    st.tuples(st.sampled_from(("outage", "lost answers", "no report")), st.booleans()),
    st.tuples(st.just("die after"), st.integers(0, 4)),
    st.tuples(st.just("late look"), st.just(0)),
    st.tuples(st.just("long wait"), st.sampled_from((30, 120, 400))),
)
HAPPENINGS = st.tuples(FAULTS, st.sampled_from((0.5, 1.0, 2.0, 5.0)))
STORIES = st.lists(HAPPENINGS, min_size=30, max_size=60)


class Story:
    """A simulation, and what has to hold at each of its looks."""

    def __init__(self, file: Path, rules: Rules) -> None:
        self.world = Simulation(rules, file)
        self.cancelled: set[int] = set()
        self.given_up: set[int] = set()
        self.ends: Counter[int] = Counter()
        self.last: Observation | None = None
        for _ in range(8):
            self.look()

    def look(self, seen: Observation | None = None) -> float:
        """One look; returns the time until the next."""
        world = self.world
        looked_at = seen or world.observe()
        plan = world.look(looked_at)
        if looked_at.tasks is None:
            assert not [a for a in plan.actions if isinstance(a, SCHEDULERS_OWN)]
        assert 0.0 < plan.look_again_s <= world.rules.tick_s
        self.check()
        self.last = looked_at
        return plan.look_again_s

    def check(self) -> None:
        world = self.world
        for index in range(SLICES):
            live = world.scheduler.live(index)
            assert len(live) <= 1, f"two live tasks: {live}"
            assert index not in self.cancelled or not live, "nobody revives what was cancelled"
        for index, kept in world.memory.slices.items():
            assert kept.reason, f"slice {index} is {kept.state} without a reason"
            assert (kept.state is not SliceState.FAILED) or "budget has run out" in kept.reason
            counted = len(kept.failures)
            assert counted <= self.ends[index], f"slice {index}: {counted} restarts, fewer faults"
            assert index not in self.given_up or kept.state is SliceState.FAILED
            if kept.state is SliceState.FAILED:
                self.given_up.add(index)
            for cause, times in kept.spent.items():
                budget = world.rules.budget(cause)
                assert len(budget.recent(times, world.now)) <= budget.limit
        recent = Counter(
            (i, cause)
            for i, cause, at in world.restarts
            if at > world.now - world.rules.budget(cause).window_s
        )
        for (index, cause), count in recent.items():
            limit = world.rules.budget(cause).limit
            assert count <= limit, f"slice {index}: {count} restarts of {cause}, limit {limit}"

    def happen(self, fault: str, value: int) -> None:
        world = self.world
        match fault:
            case "outage":
                world.scheduler.down = bool(value)
            case "lost answers":
                world.scheduler.lose_answers = bool(value)
            case "no report":
                world.report_silent = bool(value)
            case "die after":
                world.die_after = value
            case "late look" if self.last is not None:
                # What was seen before, once more: nothing has to come of it that breaks a rule.
                self.look(self.last)
            case "long wait":
                world.pass_time(float(value))
            case "hide":
                world.hidden.add(value)
            case _ if (task := world.scheduler.newest(value)) is not None:
                self.befall(task, fault)

    def befall(self, task: SimTask, fault: str) -> None:
        self.ends[task.index] += 1
        match fault, task.state:
            case "crash", TaskState.RUNNING:
                task.end(TaskState.FAILED, "host 0 was ended by signal 9", None)
            case "exit", TaskState.RUNNING:
                task.end(TaskState.COMPLETED, "", 0)
            case "limit", TaskState.RUNNING:
                task.end(TaskState.TIMEOUT, "TimeLimit")
            case "hang", TaskState.RUNNING:
                task.hung = True
            case "preempt", TaskState.RUNNING:
                task.end(TaskState.COMPLETED, "", 0)
                task.preempted = True
            case "admin", TaskState.RUNNING:
                task.end(TaskState.PENDING, "")
            case "notice", TaskState.RUNNING:
                task.notice = True
                task.end(TaskState.COMPLETED, "", 0)
            case "hold", TaskState.PENDING:
                task.move(TaskState.HELD, "launch failed requeued held")
            case "cancel", state if not state.ended:
                task.move(TaskState.CANCELLED)
                self.cancelled.add(task.index)
            case "vanish", state if state is not TaskState.RUNNING:
                self.world.scheduler.tasks.remove(task)
                if self.world.memory.slice(task.index).state is not SliceState.CANCELLED:
                    self.cancelled.discard(task.index)  # nobody has seen that order

    def get_well(self) -> None:
        world = self.world
        world.scheduler.down = world.scheduler.lose_answers = world.report_silent = False
        world.die_after = None
        for task in world.scheduler.tasks:
            task.hung = False
        deadline = world.now + 900.0
        while world.now < deadline and not self.settled():
            world.pass_time(self.look())

    def settled(self) -> bool:
        known = self.world.memory.slices
        for_good = (SliceState.READY, SliceState.FAILED, SliceState.CANCELLED)
        return len(known) == SLICES and all(kept.state in for_good for kept in known.values())


def _tell(story: Story, happenings: list[tuple[tuple[str, int], float]]) -> None:
    for (fault, value), after_s in happenings:
        story.happen(fault, value)
        for _ in range(3):
            story.look()
            story.world.pass_time(after_s)
        if story.world.memory.exit_code:
            return  # no slice is left that could come back
    story.get_well()
    states = {index: kept.state for index, kept in story.world.memory.slices.items()}
    if story.world.memory.exit_code == 0:
        assert story.settled(), {i: k.reason for i, k in story.world.memory.slices.items()}
    if story.world.rules.on_budget is OnBudget.WAIT:
        assert SliceState.FAILED not in states.values()


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STORIES)
def test_the_invariants_hold_and_slices_come_back_once_faults_stop(
    happenings: list[tuple[tuple[str, int], float]],
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        _tell(Story(Path(directory) / "run.json", RULES), happenings)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STORIES)
def test_with_wait_no_slice_is_ever_given_up(
    happenings: list[tuple[tuple[str, int], float]],
) -> None:
    rules = Rules(1, SLICES, slice_budget=(1, 100.0), on_budget=OnBudget.WAIT, tick_s=5.0)
    with tempfile.TemporaryDirectory() as directory:
        _tell(Story(Path(directory) / "run.json", rules), happenings)
