# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What to do about nodes that fail: make them anew, keep off them, try them again. Pure.

A slice's nodes are one piece of hardware, so a fault of a run is one of all its nodes. A fault is a
run that failed and costs its slice's budget; that of a run that was preempted, announced, cancelled
or given back for maintenance is nobody's. So is one that befalls all slices at a time: it has a
cause of its own, such as the program that they run.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from pathways_slurm.budget import Budget
from pathways_slurm.causes import Cause
from pathways_slurm.events import Reason
from pathways_slurm.model import SliceMemory
from pathways_slurm.node_memory import (
    Exclusion,
    LastRun,
    NodeMemory,
    NodeRules,
    NodesMemory,
    PowerCycle,
    Stage,
)
from pathways_slurm.plan import Action, Avoid, Note, Renew
from pathways_slurm.scheduler.base import Power, Task
from pathways_slurm.states import TaskState

# One crash may be the program's; a second one on the same nodes has them made anew.
_CRASHES = 2
# What is left of a run on its nodes should have ended by itself by then.
_ASK_AGAIN_S = 30.0
_LONGEST_WAY_DOWN_S = 300.0
# Between two looks at nodes: often at first, so that no short state is missed, then rarely.
_SHORTEST_PAUSE_S = 2.0
_LONGEST_PAUSE_S = 60.0
_PAUSES = 8.0
_LONGEST_EXCLUSION = 16


@dataclass(frozen=True, slots=True)
class Fault:
    """A run's end that its nodes are to blame for; ``severe`` if once is enough to say so."""

    nodes: tuple[str, ...]
    why: str
    severe: bool


@dataclass(frozen=True, slots=True)
class SliceEnds:
    """What was decided about slices at this look.

    Attributes:
        before: Slices as of the last look, by index.
        after: Slices as of this one.
        newest: The task of each slice that has one.
        requeued: Ids of tasks that are to run again.
    """

    before: Mapping[int, SliceMemory]
    after: Mapping[int, SliceMemory]
    newest: Mapping[int, Task]
    requeued: Collection[str] = ()

    def pair(self, index: int) -> tuple[SliceMemory, SliceMemory]:
        """A slice's memory before and after."""
        return self.before.get(index, SliceMemory()), self.after.get(index, SliceMemory())


@dataclass(frozen=True, slots=True)
class NodesDecision:
    """The part of a plan that concerns nodes.

    ``actions`` come after requeues, for a run has its nodes until then, and before releases.
    """

    memory: NodesMemory
    actions: tuple[Action, ...] = ()
    notes: tuple[Note, ...] = ()


def nodes_to_look_at(memory: NodesMemory, now: float) -> tuple[str, ...]:
    """Nodes whose state is needed now (Unix seconds): none but for a while after a fault."""
    cycles = {name: node.cycle for name, node in memory.nodes.items() if node.cycle}
    under_way = {name: c for name, c in cycles.items() if c.stage is not Stage.WANTED}
    if not under_way and not memory.suspects:
        return ()
    ages = [now - cycle.since for cycle in under_way.values()]
    pause = min(_LONGEST_PAUSE_S, max(_SHORTEST_PAUSE_S, min(ages, default=0.0) / _PAUSES))
    if 0.0 <= now - memory.looked < pause:
        return ()
    return tuple(sorted({*under_way, *memory.suspects}))


def decide_nodes(
    rules: NodeRules,
    memory: NodesMemory,
    slices: SliceEnds,
    power: Mapping[str, Power] | None,
    now: float,
) -> NodesDecision:
    """Decides about all nodes.

    Args:
        rules: Limits.
        memory: Of the last plan, with what its actions taught.
        slices: What was decided about them.
        power: What was seen of :func:`nodes_to_look_at`; None if nobody looked.
        now: Unix time in seconds.
    """
    newest = dict(sorted(slices.newest.items()))
    ids = {task.id for task in newest.values()}
    known = memory.runs
    draft = _Draft(rules, memory.only_tasks(ids), dict(memory.nodes), power, now)
    draft.look()
    found = [_fault(known.get(i), *slices.pair(i), task) for i, task in newest.items()]
    faults = [fault for fault in found if fault is not None]
    if len(faults) == 1 or len(faults) < len(newest):
        for fault in faults:
            draft.blame(fault)
    for index, task in newest.items():
        draft.suspect(_taken_off(known.get(index), *slices.pair(index), task))
    draft.settle_exclusions()
    draft.keep_off(
        task
        for task in newest.values()
        if task.state is TaskState.PENDING or (task.state.ended and task.id in slices.requeued)
    )
    draft.say_what_is_not_done()
    runs = {index: _last_run(known.get(index), task) for index, task in newest.items()}
    return draft.decision({i: run for i, run in runs.items() if run is not None})


def _last_run(known: LastRun | None, task: Task) -> LastRun | None:
    # While a run ends, its nodes may leave it one by one.
    if known is not None and known.incarnation >= task.incarnation:
        return known
    if task.nodes:
        return LastRun(task.incarnation, tuple(node.name for node in task.nodes))
    return None if known is None else replace(known, over=True)


def _fault(
    run: LastRun | None, before: SliceMemory, after: SliceMemory, task: Task
) -> Fault | None:
    """The fault that this look has counted against the slice, if its nodes are to blame."""
    nodes = tuple(node.name for node in task.nodes)
    # Slurm has counted a restart by the time it holds a task, and took its nodes away.
    if not nodes and run is not None and run.incarnation >= task.incarnation - 1:
        nodes = run.nodes
    match _counted(before, after):
        case Cause.HANG | Cause.LAUNCH:
            return Fault(nodes, after.reason, severe=True)
        case Cause.CRASH | Cause.NODE:
            return Fault(nodes, after.reason, severe=False)
        case _:
            return None


def _counted(before: SliceMemory, after: SliceMemory) -> Cause | None:
    """What a failure since the last look was counted as, or would be, had it some budget left."""
    if after.exhausted is not None and before.exhausted is None:
        return after.exhausted
    for cause, times in after.spent.items():
        if times and times[-1:] != before.spent.get(cause, ())[-1:]:
            return cause
    return None


def _taken_off(
    run: LastRun | None, before: SliceMemory, after: SliceMemory, task: Task
) -> tuple[str, ...]:
    """Nodes of a run that somebody else than the supervisor has ended, for no reason known."""
    if run is None or run.over or task.incarnation <= run.incarnation or task.preempted:
        return ()
    announced = any(
        m.departure is not None and m.departure.incarnation == run.incarnation
        for m in (before, after)
    )
    if announced or before.ordered == run.incarnation or before.maintenance is not None:
        return ()
    return run.nodes


@dataclass
class _Draft:
    rules: NodeRules
    memory: NodesMemory
    nodes: dict[str, NodeMemory]
    power: Mapping[str, Power] | None
    now: float
    actions: list[Action] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)

    def decision(self, runs: Mapping[int, LastRun]) -> NodesDecision:
        kept = {name: node for name, node in self.nodes.items() if self._matters(node)}
        memory = replace(self.memory, nodes=kept, runs=runs)
        return NodesDecision(memory, tuple(self.actions), tuple(self.notes))

    def look(self) -> None:
        """Learns what has become of the nodes that are made anew, and of those in doubt."""
        if self.power is not None:
            suspects = self.memory.suspects
            for name in suspects:
                if self.power.get(name) is Power.FAILED:
                    self._count(Fault((name,), "the scheduler has it down", severe=False))
            self.memory = replace(self.memory, looked=self.now, suspects=())
        for name, node in sorted(self.nodes.items()):
            if node.cycle is not None:
                seen = self.power.get(name) if self.power is not None else None
                self.nodes[name] = replace(node, cycle=self._advance(name, node.cycle, seen))
        self._ask_again()

    def blame(self, fault: Fault) -> None:
        """Counts a fault of a run, and has its nodes made anew if that may help."""
        self._count(fault)
        recent = [self.nodes[name].faults for name in fault.nodes if name in self.nodes]
        often = any(len(times) >= _CRASHES for times in recent)
        idle = all(self.nodes[name].cycle is None for name in fault.nodes if name in self.nodes)
        if not (self.rules.power_down and fault.nodes and idle and (fault.severe or often)):
            return
        for name in fault.nodes:
            cycle = PowerCycle(Stage.WANTED, self.now, self.now, fault.why)
            self.nodes[name] = replace(self.nodes[name], cycle=cycle)
        self.actions.append(Renew(fault.nodes))

    def suspect(self, names: Iterable[str]) -> None:
        """Has nodes looked at."""
        added = sorted({*self.memory.suspects, *names})
        self.memory = replace(self.memory, suspects=tuple(added))

    def settle_exclusions(self) -> None:
        """Excludes nodes that have failed too often, and tries again those whose time has come."""
        for name, node in sorted(self.nodes.items()):
            if node.exclusion is not Exclusion.NONE and node.excluded_until <= self.now:
                if node.exclusion is Exclusion.EXCLUDED:
                    words = f"node {name} is tried again: its time is over"
                    self.notes.append(Note(Reason.NodeTriedAgain, words, f"node {name}"))
                self.nodes[name] = replace(
                    node, exclusion=Exclusion.NONE, excluded_until=0.0, tried_again=self.now
                )
            elif self._has_failed_too_often(node):
                self.nodes[name] = self._excluded(node)

    def keep_off(self, waiting: Iterable[Task]) -> None:
        """Has tasks that wait keep off excluded nodes, and says so once it is so."""
        wanted = replace(self.memory, nodes=self.nodes).excluded
        for task in waiting:
            refusal = self.memory.refused.get(task.id)
            told = self.memory.avoiding.get(task.id, ())
            refused = refusal and (refusal.incarnation, refusal.nodes) == (task.incarnation, wanted)
            if told != wanted and not refused:
                self.actions.append(Avoid(task.id, task.index, task.incarnation, wanted))
        avoided = {name for names in self.memory.avoiding.values() for name in names}
        refused_nodes = {name for r in self.memory.refused.values() for name in r.nodes}
        for name in wanted:
            self._say_exclusion(name, name in avoided, name in refused_nodes)

    def say_what_is_not_done(self) -> None:
        """Once a run: that nodes are not powered down."""
        if self.memory.unpowered and not self.memory.said_unpowered:
            words = f"nodes {', '.join(self.memory.unpowered)} were not powered down after a fault;"
            words += " supervisor.log says why. The service goes on without, and says no more of it"
            self.notes.append(Note(Reason.NodesNotPoweredDown, words, "nodes"))
            self.memory = replace(self.memory, said_unpowered=True)

    def _count(self, fault: Fault) -> None:
        budget = Budget(self.rules.budget, self.rules.window_s)
        for name in fault.nodes:
            node = self.nodes.get(name, NodeMemory())
            if node.tried_again and self.now - node.tried_again > self.rules.window_s:
                node = replace(node, exclusions=0)
            faults = (*budget.recent(node.faults, self.now), self.now)
            self.nodes[name] = replace(node, faults=faults, why=fault.why)

    def _has_failed_too_often(self, node: NodeMemory) -> bool:
        budget = Budget(self.rules.budget, self.rules.window_s)
        free = node.exclusion is Exclusion.NONE and self.rules.budget
        return bool(free) and not budget.left(node.faults, self.now)

    def _excluded(self, node: NodeMemory) -> NodeMemory:
        times = min(_LONGEST_EXCLUSION, 2**node.exclusions)
        return replace(
            node,
            faults=(),
            exclusion=Exclusion.WANTED,
            excluded_until=self.now + self.rules.exclusion_s * times,
            exclusions=node.exclusions + 1,
        )

    def _say_exclusion(self, name: str, avoided: bool, refused: bool) -> None:
        node = self.nodes[name]
        rules = self.rules
        times = "once" if rules.budget == 1 else f"{rules.budget} times"
        often = f"node {name} failed {times} in {rules.window_s:.0f} s ({node.why})"
        if avoided and node.exclusion in (Exclusion.WANTED, Exclusion.REFUSED):
            left_s = max(0.0, node.excluded_until - self.now)
            words = f"{often}; slices keep off it for {left_s:.0f} s"
            self.notes.append(Note(Reason.NodeExcluded, words, f"node {name}"))
            self.nodes[name] = replace(node, exclusion=Exclusion.EXCLUDED)
        elif refused and node.exclusion is Exclusion.WANTED:
            words = f"{often}, but can't be excluded, such as for want of other nodes; "
            words += "supervisor.log says why"
            self.notes.append(Note(Reason.NodeNotExcluded, words, f"node {name}"))
            self.nodes[name] = replace(node, exclusion=Exclusion.REFUSED)

    def _advance(self, name: str, cycle: PowerCycle, seen: Power | None) -> PowerCycle | None:
        """The power-down one look later; None once it is over."""
        age = self.now - cycle.since
        subject = f"node {name}"
        if cycle.stage is Stage.ORDERED and seen is Power.GOING_DOWN:
            return replace(cycle, stage=Stage.GOING)
        # From its way down a node only returns by having been off, if only for a moment.
        off = seen in (Power.OFF, Power.COMING_UP)
        gone = cycle.stage is Stage.GOING and (off or seen is Power.ON)
        if gone or (cycle.stage is Stage.ORDERED and off):
            words = f"{subject} is powered down: {cycle.why}"
            self.notes.append(Note(Reason.NodePoweredDown, words, subject))
            cycle = replace(cycle, stage=Stage.DOWN)
        if cycle.stage is Stage.DOWN and seen is Power.ON:
            words = f"{subject} is back, {age:.0f} s after it was to be powered down"
            self.notes.append(Note(Reason.NodeBack, words, subject))
            return None
        if cycle.stage is Stage.DOWN and seen is Power.FAILED:
            words = f"{subject} was powered down and has not come back: the scheduler has it down"
            self.notes.append(Note(Reason.NodeNotBack, words, subject))
            return None
        if cycle.stage is not Stage.DOWN and age >= _LONGEST_WAY_DOWN_S:
            if cycle.stage is not Stage.WANTED:
                words = f"{subject} has not gone down within {age:.0f} s of the order to power down"
                self.notes.append(Note(Reason.NodesNotPoweredDown, words, subject))
            return None
        return cycle

    def _ask_again(self) -> None:
        """What got no answer, and what has been on its way for long."""
        names = []
        for name, node in sorted(self.nodes.items()):
            cycle = node.cycle
            if cycle is None or cycle.stage is Stage.DOWN:
                continue
            if cycle.stage is Stage.WANTED or self.now - cycle.asked >= _ASK_AGAIN_S:
                names.append(name)
                self.nodes[name] = replace(node, cycle=replace(cycle, asked=self.now))
        if names:
            self.actions.append(Renew(tuple(names)))

    def _matters(self, node: NodeMemory) -> bool:
        window_s = self.rules.window_s
        recent = Budget(self.rules.budget, window_s).recent(node.faults, self.now)
        tried = node.tried_again and self.now - node.tried_again <= window_s
        return bool(recent or node.cycle or tried or node.exclusion is not Exclusion.NONE)
