# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""decide_nodes.py: whose fault a slice's end is, and what becomes of its nodes."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.supervisor.world import World, all_answer, seen

from pathways_slurm.causes import Cause
from pathways_slurm.decide_nodes import NodesDecision, SliceEnds, decide_nodes, nodes_to_look_at
from pathways_slurm.events import Reason
from pathways_slurm.model import Departure, Rules, SliceMemory
from pathways_slurm.node_memory import NodeRules, NodesMemory
from pathways_slurm.plan import Avoid, Release, Renew, Requeue
from pathways_slurm.scheduler.base import Node, Power, Task
from pathways_slurm.states import TaskState

RULES = NodeRules(budget=3, window_s=1000.0, exclusion_s=100.0)
PAIR = ("n0a", "n0b")


def task(index: int, state: TaskState = TaskState.RUNNING, run: int = 1, **fields: Any) -> Task:
    nodes = tuple(Node(f"n{index}{host}", "10.0.0.1") for host in "ab")
    waits = state in (TaskState.PENDING, TaskState.HELD)
    made = Task(f"7_{index}", index, state, incarnation=run, nodes=() if waits else nodes)
    return replace(made, **fields)


class Nodes:
    """Nodes from one look to the next, and a scheduler that does what it is told or does not.

    Attributes:
        powers: Whether it powers nodes down; None: it gives no answer.
        avoids: Whether it keeps tasks off nodes.
    """

    def __init__(
        self, rules: NodeRules = RULES, *, powers: bool | None = True, avoids: bool = True
    ) -> None:
        self.rules = rules
        self.powers = powers
        self.avoids = avoids
        self.memory = NodesMemory()
        self.slices: dict[int, SliceMemory] = {}
        self.now = 1000.0
        self.run = 1

    def look(
        self,
        *tasks: Task,
        power: Mapping[str, Power] | None = None,
        after_s: float = 1.0,
        slices: Mapping[int, SliceMemory] | None = None,
        requeued: Collection[str] = (),
    ) -> NodesDecision:
        self.now += after_s
        after = {**self.slices, **(slices or {})}
        newest = {one.index: one for one in tasks}
        decision = decide_nodes(
            self.rules,
            self.memory,
            SliceEnds(self.slices, after, newest, requeued),
            power,
            self.now,
        )
        self.memory, self.slices = decision.memory, after
        for action in decision.actions:
            match action:
                case Renew(names) if self.powers is not None:
                    self.memory = self.memory.with_order(names, self.powers)
                case Avoid(task_id, _, run, names):
                    self.memory = self.memory.with_avoidance(task_id, run, names, self.avoids)
        return decision

    def fail(
        self,
        *tasks: Task,
        others: tuple[Task, ...] = (),
        why: str = "",
        cause: Cause = Cause.CRASH,
    ) -> NodesDecision:
        """One look at which these runs have failed, which costs their slices' budget."""
        counted = {
            one.index: replace(
                self.slices.get(one.index, SliceMemory()),
                spent={cause: (self.now + 1.0,)},
                ordered=one.incarnation,
                reason=why or "host 0 was ended by signal 9; requeued",
            )
            for one in tasks
        }
        return self.look(*tasks, *others, slices=counted)

    def crash(self, index: int = 0) -> NodesDecision:
        """A run that is seen, and fails, while slice 1 goes on."""
        self.look(task(index, run=self.run), task(1))
        decision = self.fail(task(index, TaskState.FAILED, self.run), others=(task(1),))
        self.run += 1
        return decision

    def notes(self, decision: NodesDecision) -> list[Reason]:
        return [note.reason for note in decision.notes]


class TestFaults:
    def test_one_crash_may_be_the_programs(self) -> None:
        nodes = Nodes()
        decision = nodes.crash()
        assert decision.actions == ()
        assert nodes.memory.nodes.keys() == set(PAIR)
        assert nodes_to_look_at(nodes.memory, nodes.now) == ()

    def test_a_second_one_on_the_same_nodes_has_them_made_anew(self) -> None:
        nodes = Nodes()
        nodes.crash()
        assert nodes.crash().actions == (Renew(PAIR),)

    def test_crashes_that_are_long_apart_are_no_pattern(self) -> None:
        nodes = Nodes()
        nodes.crash()
        nodes.look(task(0, run=2), task(1), after_s=RULES.window_s)
        assert nodes.crash().actions == ()

    @pytest.mark.parametrize(
        ("end", "cause"),
        [
            (task(0), Cause.HANG),
            # Other hosts may end because of it before the run is ended.
            (task(0, TaskState.FAILED), Cause.HANG),
            (task(0, TaskState.HELD, 2, reason="launch failed requeued held"), Cause.LAUNCH),
        ],
    )
    def test_some_faults_are_enough_once(self, end: Task, cause: Cause) -> None:
        nodes = Nodes()
        nodes.look(task(0), task(1))
        decision = nodes.fail(end, others=(task(1),), cause=cause)
        assert decision.actions == (Renew(PAIR),)

    @pytest.mark.parametrize("cause", [Cause.EXIT, Cause.TIME_LIMIT, Cause.MISSING])
    def test_ends_that_are_no_nodes_fault(self, cause: Cause) -> None:
        nodes = Nodes()
        nodes.look(task(0), task(1))
        nodes.fail(task(0, TaskState.FAILED), others=(task(1),), cause=cause)
        assert nodes.memory.nodes == {}

    def test_an_end_that_costs_no_budget_is_nobodys_fault(self) -> None:
        """So it is with preemptions, notices, cancellations and maintenance."""
        nodes = Nodes()
        nodes.look(task(0), task(1))
        nodes.look(task(0, TaskState.FAILED, preempted=True), task(1))
        assert nodes.memory.nodes == {}

    def test_what_befalls_all_slices_at_once_has_another_cause(self) -> None:
        nodes = Nodes()
        nodes.look(task(0), task(1))
        nodes.fail(task(0, TaskState.FAILED), task(1, TaskState.FAILED))
        assert nodes.memory.nodes == {}

    def test_a_slice_that_is_given_up_counts_too(self) -> None:
        nodes = Nodes()
        nodes.crash()
        nodes.look(task(0, run=2), task(1))
        given_up = {0: replace(nodes.slices[0], exhausted=Cause.CRASH)}
        decision = nodes.look(task(0, TaskState.FAILED, 2), task(1), slices=given_up)
        assert decision.actions == (Renew(PAIR),)
        assert nodes.look(task(0, TaskState.FAILED, 2), task(1)).actions == ()


class TestARunThatTheSchedulerEnded:
    def taken_off(self, **memory: Any) -> Nodes:
        nodes = Nodes()
        nodes.slices[0] = replace(SliceMemory(), **memory)
        nodes.look(task(0))
        nodes.look(task(0, TaskState.PENDING, 2))
        return nodes

    def test_has_its_nodes_looked_at_and_counts_against_those_that_are_down(self) -> None:
        nodes = self.taken_off()
        assert nodes_to_look_at(nodes.memory, nodes.now) == PAIR
        power = {"n0a": Power.ON, "n0b": Power.FAILED}
        decision = nodes.look(task(0, TaskState.PENDING, 2), power=power)
        assert nodes.memory.nodes.keys() == {"n0b"}
        # Off as well, it would never be back.
        assert decision.actions == ()
        assert nodes_to_look_at(nodes.memory, nodes.now + 100) == ()

    @pytest.mark.parametrize(
        "memory",
        [
            pytest.param({"departure": Departure(1, "host 0 got SIGTERM", 0.0)}, id="after-notice"),
            pytest.param({"ordered": 1}, id="by-our-order"),
        ],
    )
    def test_for_a_reason_that_is_known_is_no_cause_to_look(
        self, memory: Mapping[str, object]
    ) -> None:
        assert nodes_to_look_at(self.taken_off(**memory).memory, 1e9) == ()

    def test_by_preemption_is_no_cause_to_look(self) -> None:
        nodes = Nodes()
        nodes.look(task(0))
        nodes.look(task(0, TaskState.PENDING, 2, preempted=True))
        assert nodes_to_look_at(nodes.memory, 1e9) == ()


class TestPower:
    def failing(self, *, powers: bool | None = True) -> Nodes:
        nodes = Nodes(powers=powers)
        nodes.look(task(0), task(1))
        nodes.fail(
            task(0),
            others=(task(1),),
            why="host 0 (n0a) has been silent for 10 s",
            cause=Cause.HANG,
        )
        return nodes

    def see(self, nodes: Nodes, power: Power, after_s: float = 2.0) -> NodesDecision:
        waits = task(0, TaskState.PENDING, 2)
        return nodes.look(waits, task(1), power=dict.fromkeys(PAIR, power), after_s=after_s)

    def test_it_is_seen_and_said_that_nodes_went_down_and_came_back(self) -> None:
        nodes = self.failing()
        assert nodes.notes(self.see(nodes, Power.GOING_DOWN)) == []
        down = self.see(nodes, Power.OFF)
        assert nodes.notes(down) == [Reason.NodePoweredDown] * 2
        assert down.notes[0].message == (
            "node n0a is powered down: host 0 (n0a) has been silent for 10 s"
        )
        assert nodes.notes(self.see(nodes, Power.COMING_UP)) == []
        back = self.see(nodes, Power.ON)
        assert nodes.notes(back) == [Reason.NodeBack] * 2
        assert back.notes[1].message == "node n0b is back, 8 s after it was to be powered down"
        assert nodes_to_look_at(nodes.memory, 1e9) == ()

    def test_a_node_may_be_off_for_less_than_lies_between_two_looks(self) -> None:
        nodes = self.failing()
        self.see(nodes, Power.GOING_DOWN)
        decision = self.see(nodes, Power.ON)
        assert nodes.notes(decision) == [Reason.NodePoweredDown, Reason.NodeBack] * 2
        assert nodes_to_look_at(nodes.memory, 1e9) == ()

    def test_looks_are_rare_and_end(self) -> None:
        nodes = self.failing()
        assert nodes_to_look_at(nodes.memory, nodes.now + 1.0) == PAIR
        self.see(nodes, Power.OFF)
        assert nodes_to_look_at(nodes.memory, nodes.now + 1.9) == ()
        assert nodes_to_look_at(nodes.memory, nodes.now + 2.1) == PAIR
        self.see(nodes, Power.OFF, after_s=400.0)
        assert nodes_to_look_at(nodes.memory, nodes.now + 40.0) == ()
        assert nodes_to_look_at(nodes.memory, nodes.now + 60.1) == PAIR

    def test_a_node_that_does_not_come_back_is_said_once(self) -> None:
        nodes = self.failing()
        self.see(nodes, Power.OFF)
        assert nodes.notes(self.see(nodes, Power.FAILED)) == [Reason.NodeNotBack] * 2
        assert nodes.notes(self.see(nodes, Power.FAILED)) == []

    def test_a_node_that_does_not_go_down_is_asked_for_again_and_then_given_up(self) -> None:
        nodes = self.failing()
        assert self.see(nodes, Power.GOING_DOWN, after_s=29.0).actions == ()
        assert self.see(nodes, Power.GOING_DOWN, after_s=1.0).actions == (Renew(PAIR),)
        assert self.see(nodes, Power.GOING_DOWN, after_s=29.0).actions == ()
        decision = self.see(nodes, Power.GOING_DOWN, after_s=300.0)
        assert nodes.notes(decision) == [Reason.NodesNotPoweredDown] * 2
        assert "has not gone down within 359 s" in decision.notes[0].message
        assert self.see(nodes, Power.GOING_DOWN, after_s=300.0).actions == ()

    def test_an_order_without_an_answer_is_repeated(self) -> None:
        nodes = self.failing(powers=None)
        assert nodes_to_look_at(nodes.memory, nodes.now + 5.0) == ()
        nodes.powers = True
        waits = task(0, TaskState.PENDING, 2)
        assert nodes.look(waits, task(1)).actions == (Renew(PAIR),)
        assert nodes.look(waits, task(1)).actions == ()

    def test_without_the_right_to_it_that_is_said_once_and_gone_without(self) -> None:
        nodes = self.failing(powers=False)
        decision = nodes.look(task(0, TaskState.PENDING, 2), task(1))
        assert nodes.notes(decision) == [Reason.NodesNotPoweredDown]
        assert "n0a, n0b were not powered down" in decision.notes[0].message
        assert nodes_to_look_at(nodes.memory, 1e9) == ()
        nodes.run = 2
        for _ in range(2):
            assert nodes.notes(nodes.crash()) == []

    def test_not_where_the_settings_have_it_so(self) -> None:
        nodes = Nodes(replace(RULES, power_down=False))
        for _ in range(3):
            assert nodes.crash().actions == ()
        assert nodes.memory.excluded == PAIR


class TestExclusion:
    def excluded(self, *, avoids: bool = True) -> Nodes:
        nodes = Nodes(replace(RULES, power_down=False), avoids=avoids)
        for _ in range(RULES.budget):
            nodes.crash()
        return nodes

    def waits(self, nodes: Nodes, after_s: float = 1.0) -> NodesDecision:
        return nodes.look(task(0, TaskState.PENDING, nodes.run), task(1), after_s=after_s)

    def test_a_node_that_keeps_failing_is_kept_off_and_that_is_said(self) -> None:
        nodes = self.excluded()
        assert self.waits(nodes).actions == (Avoid("7_0", 0, 4, PAIR),)
        decision = self.waits(nodes)
        assert decision.actions == ()
        assert nodes.notes(decision) == [Reason.NodeExcluded] * 2
        assert decision.notes[0].message == (
            "node n0a failed 3 times in 1000 s (host 0 was ended by signal 9; requeued); "
            "slices keep off it for 98 s"
        )
        assert nodes.memory.kept_off == PAIR
        assert nodes.notes(self.waits(nodes)) == []

    def test_every_task_keeps_off_it_once_it_waits(self) -> None:
        nodes = self.excluded()
        self.waits(nodes)
        decision = nodes.look(
            task(0, TaskState.PENDING, nodes.run), task(1, TaskState.PENDING, 2, preempted=True)
        )
        assert decision.actions == (Avoid("7_1", 1, 2, PAIR),)

    def test_it_is_tried_again_when_its_time_is_over(self) -> None:
        nodes = self.excluded()
        self.waits(nodes)
        self.waits(nodes)
        decision = self.waits(nodes, after_s=RULES.exclusion_s)
        assert nodes.notes(decision) == [Reason.NodeTriedAgain] * 2
        assert decision.actions == (Avoid("7_0", 0, 4, ()),)
        assert self.waits(nodes).actions == ()
        assert nodes.memory.excluded == ()

    def test_the_next_time_is_twice_as_long(self) -> None:
        nodes = self.excluded()
        for times in (1, 2, 4):
            left = {node.excluded_until - nodes.now for node in nodes.memory.nodes.values()}
            assert left == {RULES.exclusion_s * times}
            self.waits(nodes, after_s=RULES.exclusion_s * times)
            assert nodes.memory.excluded == ()
            for _ in range(RULES.budget):
                nodes.crash()

    def test_a_node_that_did_well_for_long_begins_anew(self) -> None:
        nodes = self.excluded()
        self.waits(nodes, after_s=RULES.exclusion_s)
        self.waits(nodes, after_s=RULES.window_s + 1.0)
        assert nodes.memory.nodes == {}

    def test_where_that_can_not_be_it_is_said_once(self) -> None:
        nodes = self.excluded(avoids=False)
        assert self.waits(nodes).actions == (Avoid("7_0", 0, 4, PAIR),)
        decision = self.waits(nodes)
        assert decision.actions == ()
        assert nodes.notes(decision) == [Reason.NodeNotExcluded] * 2
        assert nodes.memory.kept_off == ()
        # The next run of it is another chance.
        nodes.run += 1
        assert self.waits(nodes).actions == (Avoid("7_0", 0, 5, PAIR),)
        assert nodes.notes(self.waits(nodes)) == []
        nodes.avoids = True
        nodes.run += 1
        self.waits(nodes)
        assert nodes.notes(self.waits(nodes)) == [Reason.NodeExcluded] * 2

    def test_never_without_a_budget(self) -> None:
        nodes = Nodes(replace(RULES, budget=0))
        for _ in range(5):
            nodes.crash()
        assert nodes.memory.excluded == ()


class TestInAService:
    """Together with what is decided about slices."""

    def test_a_task_keeps_off_nodes_before_it_is_released(self) -> None:
        world = World(Rules(min_slices=1, max_slices=3, nodes=replace(RULES, budget=1)))
        everything = world.ready()
        others = [one for one in everything.tasks or () if one.index != 1]
        crashed = task(1, TaskState.FAILED, reason="host 0 exited with code 3")
        plan = world.look(seen(crashed, *others, answering=(0, 2), published=True))
        assert plan.actions[:2] == (Requeue("7_1", 1), Avoid("7_1", 1, 1, ("n1a", "n1b")))
        assert plan.actions[2:] in ((), (Release("7_1", 1),))
        waits = task(1, TaskState.PENDING, 2, restarts=1, reason="BeginTime")
        plan = world.look(seen(waits, *others, answering=(0, 2), published=True))
        assert plan.actions == (Avoid("7_1", 1, 2, ("n1a", "n1b")), Release("7_1", 1))

    def test_a_silent_slice_is_requeued_before_its_nodes_are_powered_down(self) -> None:
        world = World(Rules(min_slices=1, max_slices=3, nodes=RULES))
        everything = replace(world.ready(), silent={**all_answer((0, 2)), 1: (0,)})
        plans = [world.look(everything) for _ in range(14)]
        plan = next(plan for plan in plans if any(isinstance(a, Renew) for a in plan.actions))
        assert plan.actions == (Requeue("7_1", 1), Renew(("n1",)))

    def test_nothing_is_remembered_where_nodes_can_not_be_told_apart(self) -> None:
        world = World(Rules(min_slices=1, max_slices=3))
        world.ready()
        assert world.memory.nodes == NodesMemory()
