# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What the local scheduler keeps of an array, and what follows from it. Pure.

Of each task there is an *intent*, written by whoever gives orders, and the *state* of its last
run, written by the task's runner. A task is pending while the intent asks for a run that has not
begun. Together with the fact whether a runner lives they determine what the task is; nothing else
is stored.
"""

from ipaddress import IPv4Network
from typing import Any, NamedTuple, Self

from pathways_slurm.scheduler.base import Node, Task
from pathways_slurm.states import TaskState

# Slurm's words.
BEGIN_TIME = "BeginTime"
RUNNER_LOST = "runner ended unexpectedly"

_MAX_PART = 254


class Spec(NamedTuple):
    """An array as submitted; never changes. ``env`` is complete but for what each host adds."""

    tag: str
    indices: tuple[int, ...]
    hosts_per_task: int
    argv: tuple[str, ...]
    env: dict[str, str]
    first_incarnation: int
    log_dir: str
    network: str
    kill_wait_s: float

    def to_json(self) -> dict[str, Any]:
        return self._asdict()

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """Raises KeyError, TypeError or ValueError if ``fields`` are not those of a Spec."""
        return cls(**{**fields, "indices": tuple(fields["indices"]), "argv": tuple(fields["argv"])})

    def nodes(self, index: int) -> tuple[Node, ...]:
        """The nodes of a slice, in node order."""
        network = IPv4Network(self.network)
        return tuple(slice_node(network, index, host) for host in range(self.hosts_per_task))

    def host_env(self, index: int, host: int, restarts: int) -> dict[str, str]:
        """The whole environment of one host's process. See ``ArraySpec``."""
        nodes = self.nodes(index)
        return self.env | {
            "PATHWAYS_SLICE_INDEX": str(index),
            "PATHWAYS_HOST_INDEX": str(host),
            "PATHWAYS_NODE_NAMES": ",".join(node.name for node in nodes),
            "PATHWAYS_NODE_ADDRESSES": ",".join(node.address for node in nodes),
            "PATHWAYS_INCARNATION": str(self.first_incarnation + restarts),
        }


class Intent(NamedTuple):
    """What was ordered of a task: the run with ``restarts``, not before ``begin_at``.

    Times are Unix times in seconds; ``since`` is that of the order.
    """

    restarts: int
    since: float
    begin_at: float = 0.0
    cancelled: bool = False


class RunState(NamedTuple):
    """A task's last run, as its runner wrote it: RUNNING, COMPLETING or an end."""

    state: TaskState
    restarts: int
    since: float
    reason: str = ""
    exit_code: int | None = None
    signal: int | None = None
    pids: tuple[int, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return self._asdict()

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """Raises KeyError, TypeError or ValueError if ``fields`` are not those of a RunState."""
        return cls(**{**fields, "state": TaskState(fields["state"]), "pids": tuple(fields["pids"])})


class Record(NamedTuple):
    """All there is to know of a task at one moment."""

    intent: Intent
    run: RunState | None
    runner_lives: bool

    @property
    def waits(self) -> bool:
        """A run is ordered that has not begun, and is not to be called off."""
        return not self.intent.cancelled and (
            self.run is None or self.intent.restarts > self.run.restarts
        )

    @property
    def lost(self) -> bool:
        """The last run has no end on record and nobody left to write it."""
        return self.run is not None and not self.run.state.ended and not self.runner_lives


def slice_node(network: IPv4Network, index: int, host: int) -> Node:
    """Host ``host`` of slice ``index``: address .(1+index).(1+host) of the network.

    Raises:
        ValueError: The network has no such address.
    """
    offset = ((1 + index) << 8) + 1 + host
    # One less: the last address of a network is its broadcast address.
    if index >= _MAX_PART or host >= _MAX_PART or offset >= network.num_addresses - 1:
        raise ValueError(
            f"slice {index}, host {host} would have address .{1 + index}.{1 + host}, which is not "
            f"in {network}; each part can be 1 to {_MAX_PART}, and a /16 network has them all"
        )
    return Node(f"slice-{index}-host-{host}", str(network.network_address + offset))


def service_node(network: IPv4Network) -> Node:
    """The machine itself: address .0.1 of the network."""
    return Node("service", str(network.network_address + 1))


def format_task_id(array_id: str, index: int) -> str:
    """Slurm's form, ARRAY_INDEX."""
    return f"{array_id}_{index}"


def parse_task_id(text: str) -> tuple[str, int] | None:
    """(array id, index), or None if ``text`` is not a task id of this scheduler."""
    array_id, _, index = text.rpartition("_")
    if not array_id or not (index.isascii() and index.isdigit()):
        return None
    return array_id, int(index)


def observed(spec: Spec, array_id: str, index: int, record: Record, now: float) -> Task:
    """What the scheduler says of a task."""
    run = record.run
    state, reason, since, restarts = _state(record, now)
    return Task(
        id=format_task_id(array_id, index),
        index=index,
        state=state,
        reason=reason,
        restarts=restarts,
        incarnation=spec.first_incarnation + restarts,
        exit_code=None if run is None else run.exit_code,
        signal=None if run is None else run.signal,
        nodes=() if run is None or state is TaskState.PENDING else spec.nodes(index),
        since=since,
        pids=run.pids if run is not None and state in _LIVE else (),
    )


_LIVE = (TaskState.RUNNING, TaskState.COMPLETING)


def _state(record: Record, now: float) -> tuple[TaskState, str, float, int]:
    """State, reason, since and restarts."""
    run, intent = record.run, record.intent
    live = run is not None and not run.state.ended and record.runner_lives
    if run is not None and live:
        if record.waits or intent.cancelled:
            why = "cancelled" if intent.cancelled else "requeued"
            return TaskState.COMPLETING, why, intent.since, run.restarts
        return run.state, run.reason, run.since, run.restarts
    if run is None or intent.restarts > run.restarts:
        if intent.cancelled:
            return TaskState.CANCELLED, "cancelled", intent.since, intent.restarts
        reason = BEGIN_TIME if intent.begin_at > now else ""
        return TaskState.PENDING, reason, intent.since, intent.restarts
    if record.lost:
        return TaskState.NODE_FAIL, RUNNER_LOST, run.since, run.restarts
    return run.state, run.reason, run.since, run.restarts
