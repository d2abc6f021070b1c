# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""slurm_nodes.py: which nodes a task has."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.slurm.support import FakeSlurm, programs

from pathways_slurm.scheduler.base import Node
from pathways_slurm.scheduler.slurm_command import SlurmClient
from pathways_slurm.scheduler.slurm_nodes import NodeDirectory
from pathways_slurm.scheduler.slurm_parse import Row
from pathways_slurm.states import TaskState

RUNNING = Row(
    "44_0", "44", 0, TaskState.RUNNING, "", 1, "", 1.0, 9.0, 0.0, 0.0, "old", "", "pathways-run-0"
)


@pytest.fixture
def slurm() -> FakeSlurm:
    answering = FakeSlurm()
    nodes = "NodeName=old NodeAddr=10.0.0.1 State=DOWN\nNodeName=new NodeAddr=10.0.0.2 State=IDLE\n"
    answering.answers = {"scontrol --oneliner show node": (0, nodes)}
    return answering


@pytest.fixture
def directory(slurm: FakeSlurm, tmp_path: Path) -> NodeDirectory:
    return NodeDirectory(SlurmClient(0.5, {"PATH": programs(tmp_path / "bin")}, slurm))


@pytest.mark.parametrize("state", [TaskState.PENDING, TaskState.HELD])
def test_a_task_that_waits_has_not_the_nodes_of_its_last_run(
    directory: NodeDirectory, slurm: FakeSlurm, state: TaskState
) -> None:
    assert directory.nodes_of([replace(RUNNING, state=state)]) == {}
    assert slurm.calls == []


def test_the_nodes_of_a_next_run_are_its_own_even_if_it_starts_when_the_last_was_said_to(
    directory: NodeDirectory,
) -> None:
    assert directory.nodes_of([RUNNING]) == {"44_0": (Node("old", "10.0.0.1"),)}
    elsewhere = replace(RUNNING, nodes="new")
    assert directory.nodes_of([elsewhere]) == {"44_0": (Node("new", "10.0.0.2"),)}


def test_each_run_is_looked_up_once(directory: NodeDirectory, slurm: FakeSlurm) -> None:
    for _ in range(3):
        directory.nodes_of([RUNNING])
    assert len(slurm.calls) == 1
    directory.nodes_of([replace(RUNNING, started=10.0)])
    assert len(slurm.calls) == 2
