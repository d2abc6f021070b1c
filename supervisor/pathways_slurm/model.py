# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What passes between observe, decide and execute: plain frozen values."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from pathways_slurm.events import Reason
from pathways_slurm.scheduler.base import Task
from pathways_slurm.states import ServicePhase, SliceState


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
        slice_budget: The same of each slice's restarts after a failure.
        missing_grace_s: How long a task may be absent from the scheduler's answers before its
            slice is submitted again.
        tick_s: Longest time between two looks.
        start_timeout_s: Time to become ready for the first time; None for any.
    """

    min_slices: int
    max_slices: int
    component_budget: tuple[int, float] = (5, 600.0)
    slice_budget: tuple[int, float] = (10, 600.0)
    missing_grace_s: float = 30.0
    tick_s: float = 1.0
    start_timeout_s: float | None = None


# ---------------------------------------------------------------- observation


@dataclass(frozen=True, slots=True)
class ComponentView:
    """RM or proxy at one moment.

    Attributes:
        alive: Its process exists.
        answers: Its port accepts connections.
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
        silent: Of every slice that runs, the indices of its hosts that accept no connection; a
            slice whose every host answers has none of them.
        components: RM and proxy.
        published: cluster.env exists and names this run's proxy.
        stop_reason: Why the service should end, or "".
        found: Array ids, by tag, of submissions whose answer was never seen.
    """

    tasks: tuple[Task, ...] | None
    stale_reason: str
    silent: Mapping[int, tuple[int, ...]]
    components: Mapping[Component, ComponentView]
    published: bool
    stop_reason: str = ""
    found: Mapping[str, str] = field(default_factory=dict)


# ---------------------------------------------------------------- memory


@dataclass(frozen=True, slots=True)
class Submission:
    """An array that was, or is about to be, submitted; ``array_id`` is "" until it is known."""

    tag: str
    indices: tuple[int, ...]
    first_incarnation: int
    array_id: str = ""


@dataclass(frozen=True, slots=True)
class SliceMemory:
    """What was last decided about a slice, and what the scheduler no longer tells.

    Attributes:
        state: As last shown.
        since: Unix time at which ``state`` began.
        reason: As last shown.
        incarnation: Newest seen.
        was_ready: Incarnation that was ready last; 0 if none.
        failures: Unix times of restarts after failures.
        missing_since: Unix time at which its task was first absent; 0 while it is there.
        ordered: Incarnation whose restart was ordered, so that it is ordered and counted once.
    """

    state: SliceState = SliceState.PENDING
    since: float = 0.0
    reason: str = "not submitted yet"
    incarnation: int = 0
    was_ready: int = 0
    failures: tuple[float, ...] = ()
    missing_since: float = 0.0
    ordered: int = 0


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
        component_restarts: Unix times of restarts.
        started: Components that were started at least once.
        scheduler_silent: The scheduler did not answer at the last look.
        proxy_silent_since: Unix time since when the living proxy does not answer; 0 if it does.
    """

    run_id: str
    phase: ServicePhase = ServicePhase.STARTING
    since: float = 0.0
    reason: str = ""
    exit_code: int = 0
    submissions: tuple[Submission, ...] = ()
    slices: Mapping[int, SliceMemory] = field(default_factory=dict)
    component_restarts: Mapping[Component, tuple[float, ...]] = field(default_factory=dict)
    started: frozenset[Component] = frozenset()
    scheduler_silent: bool = False
    proxy_silent_since: float = 0.0

    def slice(self, index: int) -> SliceMemory:
        """Memory of one slice, empty if there is none yet."""
        return self.slices.get(index, SliceMemory())

    def with_array(self, tag: str, array_id: str) -> "Memory":
        """The same with the id of a submission filled in."""
        return replace(
            self,
            submissions=tuple(
                replace(s, array_id=array_id) if s.tag == tag else s for s in self.submissions
            ),
        )


# ---------------------------------------------------------------- plan


@dataclass(frozen=True, slots=True)
class StartComponent:
    """Start RM or proxy."""

    component: Component


@dataclass(frozen=True, slots=True)
class StopComponent:
    """End RM or proxy; with ``force``, by SIGKILL."""

    component: Component
    force: bool = False


@dataclass(frozen=True, slots=True)
class Submit:
    """Submit, or adopt, the array with this tag. The intent is in memory already."""

    submission: Submission


@dataclass(frozen=True, slots=True)
class Requeue:
    """Run a slice's ended task again."""

    task_id: str
    index: int


@dataclass(frozen=True, slots=True)
class Release:
    """Let a held task start."""

    task_id: str
    index: int


@dataclass(frozen=True, slots=True)
class Cancel:
    """End tasks for good."""

    task_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Publish:
    """Write cluster.env."""


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Remove cluster.env."""


Action = StartComponent | StopComponent | Submit | Requeue | Release | Cancel | Publish | Withdraw


@dataclass(frozen=True, slots=True)
class Note:
    """A transition to record: becomes one line of events.jsonl."""

    reason: Reason
    message: str
    subject: str = "service"


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now.

    Attributes:
        actions: In order.
        notes: Transitions since the last plan.
        memory: To be kept, and saved before ``actions`` are performed.
        look_again_s: Seconds until the next look, at most.
        exit_code: The service has ended; the supervisor returns this. None while it goes on.
    """

    actions: tuple[Action, ...]
    notes: tuple[Note, ...]
    memory: Memory
    look_again_s: float
    exit_code: int | None = None
