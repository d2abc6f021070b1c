# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What a supervisor remembers of its slices' nodes: plain frozen values."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class NodeRules:
    """The part of the settings that decisions about nodes depend on. Times in seconds.

    Attributes:
        budget: Faults of a node within ``window_s`` that have it excluded; 0 for never.
        window_s: Of the budget.
        exclusion_s: Until an excluded node is tried again; doubled each time it fails anew.
        power_down: Whether nodes that fail are powered down.
    """

    budget: int = 3
    window_s: float = 3600.0
    exclusion_s: float = 1800.0
    power_down: bool = True


class Stage(StrEnum):
    """How far a power-down has come."""

    WANTED = "WANTED"  # the scheduler has not been told, or not answered
    ORDERED = "ORDERED"
    GOING = "GOING"  # the node was seen on its way
    DOWN = "DOWN"  # the node was seen off, and not seen back yet


@dataclass(frozen=True, slots=True)
class PowerCycle:
    """A node that is made anew.

    Attributes:
        stage: How far it has come.
        since: Unix time at which it was decided.
        asked: Unix time of the last order.
        why: For people.
    """

    stage: Stage
    since: float
    asked: float
    why: str


class Exclusion(StrEnum):
    """Whether tasks are kept off a node."""

    NONE = "NONE"
    WANTED = "WANTED"  # no task has been told yet
    EXCLUDED = "EXCLUDED"
    REFUSED = "REFUSED"  # by the scheduler, such as for want of other nodes


@dataclass(frozen=True, slots=True)
class NodeMemory:
    """What is remembered of one node. Times are Unix times, 0 for never.

    Attributes:
        faults: Times of its faults, since it was last excluded.
        why: The last one, for people.
        cycle: Its power-down, while one is under way.
        exclusion: Whether tasks are kept off it.
        excluded_until: When it is tried again.
        exclusions: How often in a row it was excluded.
        tried_again: When it last was.
    """

    faults: tuple[float, ...] = ()
    why: str = ""
    cycle: PowerCycle | None = None
    exclusion: Exclusion = Exclusion.NONE
    excluded_until: float = 0.0
    exclusions: int = 0
    tried_again: float = 0.0


@dataclass(frozen=True, slots=True)
class LastRun:
    """The newest run of a slice that was seen on nodes; ``over`` once a later one was seen."""

    incarnation: int
    nodes: tuple[str, ...]
    over: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """A task that could not be kept off nodes, in the run that was to begin."""

    incarnation: int
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NodesMemory:
    """What is remembered of all nodes.

    Attributes:
        nodes: By name; only those of which there is something to remember.
        runs: By slice index.
        suspects: Nodes that a run was taken off by the scheduler itself, until they are looked at.
        avoiding: Task id → nodes that it keeps off.
        refused: Task id → nodes that it could not be kept off.
        looked: Unix time of the last look at nodes.
        unpowered: Nodes that were not powered down when that was asked for first; () until then.
        said_unpowered: That was said.
    """

    nodes: Mapping[str, NodeMemory] = field(default_factory=dict)
    runs: Mapping[int, LastRun] = field(default_factory=dict)
    suspects: tuple[str, ...] = ()
    avoiding: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    refused: Mapping[str, Refusal] = field(default_factory=dict)
    looked: float = 0.0
    unpowered: tuple[str, ...] = ()
    said_unpowered: bool = False

    @property
    def excluded(self) -> tuple[str, ...]:
        """Nodes that tasks are to keep off, in order of their names."""
        return tuple(sorted(n for n, m in self.nodes.items() if m.exclusion is not Exclusion.NONE))

    @property
    def kept_off(self) -> tuple[str, ...]:
        """Nodes that a task has been kept off, so that a new one can be as well."""
        return tuple(sorted(n for n, m in self.nodes.items() if m.exclusion is Exclusion.EXCLUDED))

    def only_tasks(self, ids: Collection[str]) -> "NodesMemory":
        """Without what was told to tasks that are not there any more."""
        avoiding = {task: names for task, names in self.avoiding.items() if task in ids}
        refused = {task: refusal for task, refusal in self.refused.items() if task in ids}
        return replace(self, avoiding=avoiding, refused=refused)

    def with_order(self, names: Sequence[str], taken: bool) -> "NodesMemory":
        """Knowing whether the scheduler powers these nodes down."""
        changed = dict(self.nodes)
        for name in names:
            known = changed.get(name, NodeMemory())
            if known.cycle is None or known.cycle.stage is not Stage.WANTED:
                continue
            cycle = replace(known.cycle, stage=Stage.ORDERED) if taken else None
            changed[name] = replace(known, cycle=cycle)
        unpowered = self.unpowered if taken or self.unpowered else tuple(names)
        return replace(self, nodes=changed, unpowered=unpowered)

    def with_avoidance(
        self, task_id: str, incarnation: int, names: tuple[str, ...], done: bool
    ) -> "NodesMemory":
        """Knowing whether a task keeps off these nodes, and no others, from now on."""
        refused = {task: what for task, what in self.refused.items() if task != task_id}
        if not done:
            refused[task_id] = Refusal(incarnation, names)
            return replace(self, refused=refused)
        return replace(self, avoiding={**self.avoiding, task_id: names}, refused=refused)
