# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What the local scheduler says of its tasks and nodes, from its records. Pure."""

from ipaddress import IPv4Network

from pathways_slurm.scheduler.base import BEGIN_TIME, Node, Task
from pathways_slurm.scheduler.local_records import Record, Spec
from pathways_slurm.states import TaskState

RUNNER_LOST = "runner ended unexpectedly"

_MAX_PART = 254
_LIVE = (TaskState.RUNNING, TaskState.COMPLETING)


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
        nodes=() if run is None or state is TaskState.PENDING else _nodes(spec, index),
        since=since,
        pids=run.pids if run is not None and state in _LIVE else (),
    )


def _nodes(spec: Spec, index: int) -> tuple[Node, ...]:
    return tuple(Node(node.name, node.address) for node in spec.nodes_of(index))


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
