# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The narrow boundary to whatever runs array tasks: Slurm, or processes on this machine.

The supervisor needs a few verbs and one snapshot type, nothing else. An array is the set of tasks
submitted for one service run; a task is one TPU slice and holds all of that slice's nodes.
"""

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from pathways_slurm.states import TaskState

# The reason of a pending task that waits for nothing but a time. Slurm's word for it.
BEGIN_TIME = "BeginTime"


class SchedulerError(Exception):
    """The scheduler refused a request; retrying the same request will not help."""


class SchedulerUnavailable(Exception):
    """The scheduler gave no answer. This says nothing about any task: treat the view as stale."""


@dataclass(frozen=True, slots=True)
class Node:
    """One machine of a slice. ``address`` is where its services can be reached."""

    name: str
    address: str


class Power(StrEnum):
    """Whether a node is there, as far as the scheduler knows."""

    ON = "ON"
    GOING_DOWN = "GOING_DOWN"
    OFF = "OFF"  # it is booted, or made anew, for the next task on it
    COMING_UP = "COMING_UP"
    FAILED = "FAILED"  # it does not answer, or the scheduler has it down


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """A request to run ``argv`` once on every host of every slice in ``indices``.

    Each host's process gets ``env`` plus the variables below, and nothing of the submitter's own
    environment but HOME, LANG, LC_*, PATH, TMPDIR, TZ and USER:

    - ``PATHWAYS_SLICE_INDEX``: the task's array index
    - ``PATHWAYS_HOST_INDEX``: 0 .. hosts_per_task-1, in the slice's node order
    - ``PATHWAYS_NODE_NAMES``, ``PATHWAYS_NODE_ADDRESSES``: comma lists in that same order
    - ``PATHWAYS_INCARNATION``: ``first_incarnation`` plus the task's restarts

    Attributes:
        tag: Unique to this submission. ``find`` looks arrays up by it, so that a submission whose
            answer was lost is adopted and never repeated.
        indices: Array indices, one per slice, each >= 0.
        hosts_per_task: Nodes of each slice.
        argv: Program and arguments; the program is an absolute path.
        env: Variables for every host's process.
        first_incarnation: Incarnation of the first run of each task of this array.
        log_dir: Where output goes, appended: ``slice-I/host-H.log`` below it.
        avoid: Names of nodes to keep off, as with ``Scheduler.avoid``, where that can be.
    """

    tag: str
    indices: tuple[int, ...]
    hosts_per_task: int
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    first_incarnation: int = 1
    log_dir: Path = Path()
    avoid: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Task:
    """What the scheduler says of one array task at one moment.

    Attributes:
        id: The scheduler's own name, ``ARRAY_INDEX``, such as ``44_3``.
        index: Slice index.
        state: See :class:`~pathways_slurm.states.TaskState`; unknown words stay UNKNOWN.
        reason: The scheduler's own words for a state ("Resources", "BeginTime", "host 1 exited
            with signal 9"), or "".
        restarts: How often the task was requeued.
        incarnation: ``first_incarnation`` of its array plus ``restarts``.
        exit_code: Of the last run, once it ended by exit.
        signal: That ended the last run, if one did.
        nodes: The slice's nodes in node order; empty while none are allocated.
        since: Unix time in seconds at which ``state`` began, as well as the scheduler knows.
        preempted: The last run ended by preemption, whatever ``state`` says.
        ended_for: Why the scheduler itself ended the last run, or is ending this one, for people
            ("its node failed"); "" if it did not, or that is not known.
        pids: Process of each host in node order, where the scheduler knows them because they run
            on this machine; otherwise empty.
    """

    id: str
    index: int
    state: TaskState
    reason: str = ""
    restarts: int = 0
    incarnation: int = 1
    exit_code: int | None = None
    signal: int | None = None
    nodes: tuple[Node, ...] = ()
    since: float = 0.0
    preempted: bool = False
    ended_for: str = ""
    pids: tuple[int, ...] = ()


class Scheduler(Protocol):
    """Every method may raise :class:`SchedulerUnavailable`, and returns within its own time-out."""

    def service_node(self) -> Node:
        """The machine that runs this code, as the slices' nodes reach it."""

    def find(self, tag: str) -> str | None:
        """The id of the array submitted with ``tag``, ended or not, or None if there is none."""

    def submit(self, spec: ArraySpec) -> str:
        """Submits ``spec`` and returns the array's id.

        Idempotent by ``spec.tag``: an array that exists already is returned, not made again.

        Raises:
            SchedulerError: The request can't be met (too many hosts, unknown program, ...).
        """

    def tasks(self, array_ids: Sequence[str]) -> tuple[Task, ...]:
        """One consistent snapshot of all tasks of these arrays, ended ones included."""

    def requeue(self, task_id: str) -> None:
        """Runs the task again: from its end, or by ending its present run first.

        That end is soon, also if the hosts hang or are stopped: they get SIGTERM, and SIGKILL after
        the scheduler's own kill wait, which need not be the time that a notice promises. To give
        the hosts time, ``notify`` them first and wait.

        Idempotent: a task that is pending already stays as it is.

        Raises:
            SchedulerError: There is no such task, or it was cancelled, which is for good.
        """

    def release(self, task_id: str) -> None:
        """Lets a pending task start as soon as nodes can be had: lifts begin times and holds.

        A task that is not pending stays as it is.

        Raises:
            SchedulerError: There is no such task.
        """

    def cancel(self, task_ids: Sequence[str]) -> None:
        """Ends tasks for good; returns once the order is taken. Unknown and ended ids are fine.

        A running task ends as soon as with ``requeue``.
        """

    def notify(self, task_ids: Sequence[str], number: signal.Signals) -> None:
        """Sends a signal to the hosts' processes of running tasks, and does nothing else to them.

        What a host makes of it is its own affair: one that ends, also by SIGKILL, has ended by
        itself, and its task may be requeued. Tasks that are unknown, pending, ending or ended get
        none, and neither does a host whose program has not started yet; that it arrived shows in
        what the hosts do. Twice is two signals.

        Raises:
            SchedulerError: The scheduler can't send this signal.
        """

    def power_down(self, nodes: Sequence[str]) -> bool:
        """Asks for nodes to be powered down, and so made anew for the next task on them.

        A node that somebody else has by now, or that is out of service, is left alone. The first
        call lets what is left of a run of ours end; a further one, while a node still has not gone
        down for it, ends that by force. Twice is once for a node that goes down or is off.

        Returns:
            Whether any of the nodes goes down; the scheduler's log says why others do not. False
            also if this cluster, or this user, powers no nodes down.
        """

    def power(self, nodes: Sequence[str]) -> Mapping[str, Power]:
        """Whether nodes are there, by name; those that are not known to be nodes are left out."""

    def avoid(self, task_id: str, nodes: Sequence[str]) -> bool:
        """Keeps a pending task off these nodes and no others, until told otherwise.

        Holds across requeues. Idempotent. No nodes: it may run anywhere again.

        Returns:
            Whether it does. False if nodes can't be chosen here, or too few would be left for the
            array's tasks; then what it kept off before stays as it was.

        Raises:
            SchedulerError: There is no such task.
        """

    def eviction(self) -> str:
        """Why the service must end here, as of the last ``tasks``; "" while it need not.

        A scheduler that runs the service itself may have given its machine up, and started the
        service again elsewhere, without having reached its processes.
        """
