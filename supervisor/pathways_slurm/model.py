# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What a supervisor observes and remembers: plain frozen values."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from pathways_slurm.budget import Budget
from pathways_slurm.causes import Cause, OnBudget
from pathways_slurm.maintenance import Request
from pathways_slurm.node_memory import NodeRules, NodesMemory
from pathways_slurm.notices import Notices
from pathways_slurm.runtime_files import Orders, Report
from pathways_slurm.scheduler.base import Power, Task
from pathways_slurm.states import ServicePhase, SliceState
from pathways_slurm.streak import NOT_ONCE, Streak


class Component(StrEnum):
    """A process of the service on the CPU node."""

    RM = "rm"
    PROXY = "proxy"

    @property
    def label(self) -> str:
        """As it is called in a sentence."""
        return {"rm": "resource manager", "proxy": "IFRT proxy"}[self.value]


@dataclass(frozen=True, slots=True)
class Rules:
    """The part of the settings that decisions depend on. Times in seconds.

    Attributes:
        min_slices: Ready slices needed before the service is announced.
        max_slices: Slices of the service.
        component_budget: Limit and window of restarts of RM, and of proxy.
        slice_budget: The same of each slice's restarts of one cause.
        budgets: The same of causes that have another.
        on_budget: What follows once one of a slice's budgets has run out.
        missing_grace_s: How long a task may be absent from the scheduler's answers before its
            slice is submitted again.
        tick_s: Longest time between two looks.
        start_timeout_s: Time to become ready for the first time; None for any.
        heartbeat_timeout_s: Silence after which a slice is lost.
        notice_s: Time from a notice to the end of a slice's processes.
        nodes: What is done about nodes; None where nodes can't be told apart, and nothing is.
    """

    min_slices: int
    max_slices: int
    component_budget: tuple[int, float] = (5, 600.0)
    slice_budget: tuple[int, float] = (10, 600.0)
    budgets: Mapping[Cause, tuple[int, float]] = field(default_factory=dict)
    on_budget: OnBudget = OnBudget.SLICE
    missing_grace_s: float = 30.0
    tick_s: float = 1.0
    start_timeout_s: float | None = None
    heartbeat_timeout_s: float = 10.0
    notice_s: float = 25.0
    nodes: NodeRules | None = None

    @property
    def longest_gap_s(self) -> float:
        """Between two looks that still are looks in a row: a look itself may take a while."""
        return 2 * self.tick_s + 10.0

    def budget(self, cause: Cause) -> Budget:
        """Of each slice's restarts of this cause."""
        return Budget(*self.budgets.get(cause, self.slice_budget))


# ---------------------------------------------------------------- observation


@dataclass(frozen=True, slots=True)
class ComponentView:
    """RM or proxy at one moment.

    Attributes:
        alive: Its process exists.
        answers: It says something to whoever connects.
        ended: How the last process ended ("ended by signal 9 (SIGKILL)"), or "".
        pid: Of the last process.
    """

    alive: bool
    answers: bool
    ended: str = ""
    pid: int | None = None


@dataclass(frozen=True, slots=True)
class Observation:
    """One look at the world.

    Attributes:
        tasks: Every task of the run's arrays, or None when the scheduler gave no answer, which
            says nothing about any task.
        stale_reason: Why ``tasks`` is None.
        silent: Of every slice that runs, the indices of its hosts that do not answer; a slice
            whose every host answers has none of them.
        components: RM and proxy.
        published: cluster.env exists and names this run's proxy.
        stop_reason: Why the service should end, or "".
        found: Array ids, by tag, of submissions whose answer was never seen.
        report: Of the resource manager that lives; None if there is none that can be read.
        orders: As the resource manager reads them now; None if they can't be read.
        announced: What programs read now; None if that is no notices.json.
        acknowledged: (slice index, incarnation) of runs that programs no longer use.
        maintenance: Requests, by slice index; None if they can't be read.
        power: Whether nodes are there that something is done about; None if nobody looked.
        faults: What could not be read → why.
    """

    tasks: tuple[Task, ...] | None
    stale_reason: str
    silent: Mapping[int, tuple[int, ...]]
    components: Mapping[Component, ComponentView]
    published: bool
    stop_reason: str = ""
    found: Mapping[str, str] = field(default_factory=dict)
    report: Report | None = None
    orders: Orders | None = None
    announced: Notices | None = None
    acknowledged: frozenset[tuple[int, int]] = frozenset()
    maintenance: Mapping[int, Request] | None = field(default_factory=dict)
    power: Mapping[str, Power] | None = None
    faults: Mapping[str, str] = field(default_factory=dict)


# ---------------------------------------------------------------- memory


@dataclass(frozen=True, slots=True)
class Submission:
    """An array that was, or is about to be, submitted; ``array_id`` is "" until it is known."""

    tag: str
    indices: tuple[int, ...]
    first_incarnation: int
    array_id: str = ""


@dataclass(frozen=True, slots=True)
class Departure:
    """A run of a slice that goes after notice, or went.

    Attributes:
        incarnation: Of the run.
        reason: Who said so, for people.
        deadline: Unix time at which its processes will be killed.
        acknowledged: Programs no longer use it.
        released: Why whoever used it waits for nothing on it any more, such as that its data is
            saved; "" while somebody may.
    """

    incarnation: int
    reason: str
    deadline: float
    acknowledged: bool = False
    released: str = ""


@dataclass(frozen=True, slots=True)
class MaintenanceMemory:
    """What was done about a request.

    Attributes:
        request: As last seen.
        notified: Incarnation whose hosts were told last.
        notified_at: Unix time of that.
        nodes: That it had then.
        freed: What became of them, for people; "" while the slice has them.
    """

    request: Request
    notified: int = 0
    notified_at: float = 0.0
    nodes: tuple[str, ...] = ()
    freed: str = ""


@dataclass(frozen=True, slots=True)
class SliceMemory:
    """What was last decided about a slice, and what the scheduler no longer tells.

    Attributes:
        state: As last shown.
        since: Unix time at which ``state`` began.
        reason: As last shown.
        incarnation: Newest seen.
        was_ready: Incarnation that was ready last; 0 if none.
        spent: Unix times of restarts after failures, by what each was counted as.
        exhausted: The cause whose budget has run out and keeps the slice down.
        missing_since: Unix time at which its task was first absent; 0 while it is there.
        ordered: Incarnation whose restart was ordered, so that it is ordered and counted once;
            negative: whose first start was, by lifting a hold.
        doubt: Looks in a row at which the slice that was ready did not take part as it should.
        departure: The last one, until the slice is ready again.
        back_since: Unix time since when its run is ready that took the place of an earlier one; 0
            if it is the first one that was ready, or is not ready yet.
        maintenance: While it is asked for.
    """

    state: SliceState = SliceState.PENDING
    since: float = 0.0
    reason: str = "not submitted yet"
    incarnation: int = 0
    was_ready: int = 0
    spent: Mapping[Cause, tuple[float, ...]] = field(default_factory=dict)
    exhausted: Cause | None = None
    missing_since: float = 0.0
    ordered: int = 0
    doubt: Streak = NOT_ONCE
    departure: Departure | None = None
    back_since: float = 0.0
    maintenance: MaintenanceMemory | None = None

    @property
    def failures(self) -> tuple[float, ...]:
        """Unix times of all counted restarts, in order."""
        return tuple(sorted(time for times in self.spent.values() for time in times))

    @property
    def going(self) -> Departure | None:
        """Of the present run, whether that is over or not."""
        departure = self.departure
        return departure if departure and departure.incarnation == self.incarnation else None

    @property
    def up(self) -> bool:
        """Its present run was ready, and is not known to be over."""
        if not 0 < self.incarnation == self.was_ready:
            return False
        if self.state is not SliceState.ENDING:
            return self.state in _MAYBE_UP
        unheard = self.doubt.looks > 0 and self.doubt.lasted_s < REPORT_S
        return bool(self.going) or unheard


# The resource manager says of a run that ends whether that was announced, and whether it was
# released; it may be a bit slower than the scheduler.
REPORT_S = 2.0
# Not to answer is not to be lost: a host may be slow, or its end not be reported yet.
_MAYBE_UP = (SliceState.READY, SliceState.UNREACHABLE, SliceState.UNKNOWN)


@dataclass(frozen=True, slots=True)
class ComponentMemory:
    """What is remembered of RM or proxy.

    Attributes:
        started: It was started at least once.
        restarts: Unix times of restarts.
        answered: The process that lives has answered at least once.
        silence: Looks in a row at which the living process did not answer.
        killed: Why it was killed, until it is started again.
    """

    started: bool = False
    restarts: tuple[float, ...] = ()
    answered: bool = False
    silence: Streak = NOT_ONCE
    killed: str = ""


@dataclass(frozen=True, slots=True)
class Memory:
    """All that a supervisor must know across its own restarts.

    Attributes:
        run_id: Names this run of the service; part of every array's tag.
        phase: As last shown; STOPPING is never left but for STOPPED or FAILED.
        since: Unix time at which ``phase`` began.
        reason: As last shown.
        exit_code: What the supervisor will return once it has stopped.
        submissions: Oldest first; the newest that names an index is the one that counts.
        slices: By index.
        components: RM and proxy.
        scheduler_silent: The scheduler did not answer at the last look.
        notices: As last announced; None before that.
        nodes: Of the slices.
    """

    run_id: str
    phase: ServicePhase = ServicePhase.STARTING
    since: float = 0.0
    reason: str = ""
    exit_code: int = 0
    submissions: tuple[Submission, ...] = ()
    slices: Mapping[int, SliceMemory] = field(default_factory=dict)
    components: Mapping[Component, ComponentMemory] = field(default_factory=dict)
    scheduler_silent: bool = False
    notices: Notices | None = None
    nodes: NodesMemory = field(default_factory=NodesMemory)

    def slice(self, index: int) -> SliceMemory:
        """Memory of one slice, empty if there is none yet."""
        return self.slices.get(index, SliceMemory())

    def component(self, component: Component) -> ComponentMemory:
        """Memory of RM or proxy, empty if there is none yet."""
        return self.components.get(component, ComponentMemory())

    def with_component(self, component: Component, memory: ComponentMemory) -> "Memory":
        """The same with another memory of RM or proxy."""
        return replace(self, components={**self.components, component: memory})

    def with_array(self, tag: str, array_id: str) -> "Memory":
        """The same with the id of a submission filled in."""
        return replace(
            self,
            submissions=tuple(
                replace(s, array_id=array_id) if s.tag == tag else s for s in self.submissions
            ),
        )
