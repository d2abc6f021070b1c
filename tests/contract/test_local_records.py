# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What a local task is, from what is on disk."""

import json
from ipaddress import IPv4Network

import pytest

from pathways_slurm.scheduler.base import Node
from pathways_slurm.scheduler.local_records import HostNode, Intent, Record, RunState, Spec
from pathways_slurm.scheduler.local_task import Step, next_step
from pathways_slurm.scheduler.local_view import observed, parse_task_id, service_node, slice_node
from pathways_slurm.states import TaskState

S = TaskState
LOST = "runner ended unexpectedly"
NOW = 1000.0
CALLED_OFF = Intent(0, 1.0, cancelled=True)
NODES = ((HostNode("a", "127.63.1.1"),), (HostNode("b", "127.63.4.1"),))
SPEC = Spec("tag", (0, 3), NODES, ("/bin/true",), {}, 5, "/logs", 5.0)


def run(state: TaskState, restarts: int = 0) -> RunState:
    return RunState(state, restarts, 900.0, "why", None, 9 if state.ended else None, (7, 8))


TABLE = [
    # intent, run, does a runner live → state, reason, restarts, next step of a runner
    (Intent(0, 1.0), None, True, S.PENDING, "", 0, Step.RUN),
    (Intent(0, 1.0), None, False, S.PENDING, "", 0, Step.RUN),
    (CALLED_OFF, None, True, S.CANCELLED, "cancelled", 0, Step.LEAVE),
    (CALLED_OFF, None, False, S.CANCELLED, "cancelled", 0, Step.LEAVE),
    (Intent(0, 1.0), run(S.RUNNING), True, S.RUNNING, "why", 0, Step.LEAVE),
    (
        Intent(0, 1.0),
        run(S.RUNNING),
        False,
        S.NODE_FAIL,
        "runner ended unexpectedly",
        0,
        Step.LEAVE,
    ),
    (Intent(0, 1.0), run(S.COMPLETING), True, S.COMPLETING, "why", 0, Step.LEAVE),
    (Intent(0, 1.0), run(S.FAILED), True, S.FAILED, "why", 0, Step.LEAVE),
    (Intent(0, 1.0), run(S.FAILED), False, S.FAILED, "why", 0, Step.LEAVE),
    (
        Intent(0, 1.0, cancelled=True),
        run(S.RUNNING),
        True,
        S.COMPLETING,
        "cancelled",
        0,
        Step.LEAVE,
    ),
    (Intent(1, 1.0), run(S.RUNNING), True, S.COMPLETING, "requeued", 0, Step.RUN),
    (Intent(1, 1.0), run(S.RUNNING), False, S.PENDING, "", 1, Step.RUN),
    (Intent(1, 1.0), run(S.FAILED), True, S.PENDING, "", 1, Step.RUN),
    (Intent(1, 1.0, 1001.0), run(S.FAILED), True, S.PENDING, "BeginTime", 1, Step.WAIT),
    (Intent(1, 1.0, 999.0), run(S.FAILED), True, S.PENDING, "", 1, Step.RUN),
    (Intent(1, 1.0, 1001.0, True), run(S.FAILED), True, S.CANCELLED, "cancelled", 1, Step.LEAVE),
    (Intent(1, 1.0), run(S.RUNNING, 1), True, S.RUNNING, "why", 1, Step.LEAVE),
]


@pytest.mark.parametrize(("intent", "last", "lives", "state", "reason", "restarts", "step"), TABLE)
def test_a_task_follows_from_intent_run_and_runner(
    intent: Intent,
    last: RunState | None,
    lives: bool,
    state: TaskState,
    reason: str,
    restarts: int,
    step: Step,
) -> None:
    record = Record(intent, last, lives)
    task = observed(SPEC, "local-1", 3, record, NOW)
    assert (task.id, task.index) == ("local-1_3", 3)
    assert (task.state, task.reason, task.restarts) == (state, reason, restarts)
    assert task.incarnation == 5 + restarts
    has_nodes = last is not None and state is not S.PENDING
    assert task.nodes == ((Node("b", "127.63.4.1"),) if has_nodes else ())
    assert task.pids == ((7, 8) if state in (S.RUNNING, S.COMPLETING) else ())
    assert task.since > 0
    assert next_step(record, NOW) is step


def test_records_survive_json() -> None:
    state = run(S.FAILED)
    assert RunState.from_json(json.loads(json.dumps(state.to_json()))) == state
    assert Spec.from_json(json.loads(json.dumps(SPEC.to_json()))) == SPEC


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("local-1_3", ("local-1", 3)),
        ("a_b_12", ("a_b", 12)),
        ("_3", None),
        ("local-1_", None),
        ("local-1", None),
        ("local-1_x", None),
        ("local-1_-1", None),
        ("local-1_²", None),
        ("", None),
    ],
)
def test_task_ids(text: str, parsed: tuple[str, int] | None) -> None:
    assert parse_task_id(text) == parsed


def test_addresses() -> None:
    network = IPv4Network("127.63.0.0/16")
    assert slice_node(network, 0, 0).address == "127.63.1.1"
    assert slice_node(network, 253, 253).address == "127.63.254.254"
    assert service_node(network).address == "127.63.0.1"
    for index, host in [(254, 0), (0, 254)]:
        with pytest.raises(ValueError, match="not in"):
            slice_node(network, index, host)
