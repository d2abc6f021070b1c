# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What a supervisor decides to do: plain frozen values."""

from dataclasses import dataclass
from signal import Signals

from pathways_slurm.events import Reason
from pathways_slurm.model import Component, Memory, Submission
from pathways_slurm.notices import Notices
from pathways_slurm.runtime_files import Orders


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
    """Run a slice's task again; one that still runs is ended first."""

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
class Notify:
    """Send a running slice's hosts a signal, and nothing else."""

    task_id: str
    index: int
    number: Signals


@dataclass(frozen=True, slots=True)
class PowerDown:
    """Have nodes that were given back made anew, where the cluster does such things."""

    index: int
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Renew:
    """Have nodes that failed powered down, and so made anew, where the cluster does that."""

    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Avoid:
    """Have a pending task keep off these nodes and no others."""

    task_id: str
    index: int
    incarnation: int
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Command:
    """Write the resource manager's orders."""

    orders: Orders


@dataclass(frozen=True, slots=True)
class Announce:
    """Write what programs must know."""

    notices: Notices


@dataclass(frozen=True, slots=True)
class Forget:
    """Remove programs' answers that are settled."""

    answers: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Publish:
    """Write cluster.env."""


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Remove cluster.env."""


Action = (
    StartComponent
    | StopComponent
    | Submit
    | Requeue
    | Release
    | Cancel
    | Notify
    | PowerDown
    | Renew
    | Avoid
    | Command
    | Announce
    | Forget
    | Publish
    | Withdraw
)


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
