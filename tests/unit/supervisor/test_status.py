# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What ``status`` says while supervisors come and go."""

import json
import os
from pathlib import Path

import pytest

from pathways_slurm.causes import Cause
from pathways_slurm.model import Component, ComponentView, Memory, Observation, Rules, SliceMemory
from pathways_slurm.paths import ServicePaths
from pathways_slurm.scheduler.base import Node, Task
from pathways_slurm.service_lock import service_lock
from pathways_slurm.states import ServicePhase, SliceState, TaskState
from pathways_slurm.status import StatusFile, describe, read_status

ENDPOINTS = {Component.RM: ("127.0.0.1", 29001), Component.PROXY: ("127.0.0.1", 29000)}


@pytest.fixture
def paths(tmp_path: Path) -> ServicePaths:
    found = ServicePaths(tmp_path)
    found.state.mkdir()
    return found


def _write(paths: ServicePaths, phase: str) -> None:
    StatusFile(paths.status).write({"service": phase, "reason": "all well", "slices": []})


def test_nothing_was_ever_started(paths: ServicePaths) -> None:
    status = read_status(paths)
    assert status["service"] == "STOPPED"
    assert str(paths.directory) in status["reason"]


def test_the_word_of_the_living_supervisor_counts(paths: ServicePaths) -> None:
    with service_lock(paths.lock):
        _write(paths, "READY")
        status = read_status(paths)
    assert (status["service"], status["supervisor_pid"]) == ("READY", os.getpid())


def test_the_word_of_a_dead_supervisor_does_not(paths: ServicePaths) -> None:
    _write(paths, "READY")
    status = read_status(paths)
    assert (status["service"], status["supervisor_pid"]) == ("UNKNOWN", None)
    assert "no supervisor runs; the last word was READY: all well" in status["reason"]


def test_the_word_of_an_earlier_supervisor_is_not_taken_for_a_new_ones(
    paths: ServicePaths,
) -> None:
    _write(paths, "READY")
    text = json.loads(paths.status.read_text())
    paths.status.write_text(json.dumps({**text, "supervisor_pid": 1}))
    with service_lock(paths.lock):
        status = read_status(paths)
    assert status["service"] == "UNKNOWN"
    assert "has just started" in status["reason"]


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"service": "READY"}'])
def test_a_damaged_status_is_an_error_with_its_reason(paths: ServicePaths, text: str) -> None:
    paths.status.write_text(text)
    with pytest.raises(ValueError, match=r"no status of this version|Expecting value"):
        read_status(paths)


@pytest.mark.parametrize("phase", ["STOPPED", "FAILED"])
def test_an_end_stays_an_end(paths: ServicePaths, phase: str) -> None:
    _write(paths, phase)
    assert read_status(paths)["service"] == phase


def test_it_is_written_only_when_it_has_changed(paths: ServicePaths) -> None:
    file = StatusFile(paths.status)
    file.write({"service": "READY"})
    before = paths.status.stat().st_ino
    file.write({"service": "READY"})
    assert paths.status.stat().st_ino == before
    file.write({"service": "DEGRADED"})
    assert paths.status.stat().st_ino != before


def test_a_slice_is_described_with_nodes_and_pids() -> None:
    nodes = (Node("n0", "127.0.1.1"), Node("n1", "127.0.1.2"))
    task = Task("7_0", 0, TaskState.RUNNING, incarnation=2, nodes=nodes, pids=(11, 12))
    spent = {Cause.CRASH: (900.0,), Cause.EXIT: (10.0,)}
    slices = {0: SliceMemory(SliceState.READY, 5.0, "every host answers", 2, spent=spent)}
    memory = Memory("run", ServicePhase.READY, slices=slices)
    up = ComponentView(alive=True, answers=True, pid=7)
    seen = Observation((task,), "", {0: ()}, dict.fromkeys(Component, up), True)
    status = describe(Rules(1, 2), memory, seen, ENDPOINTS, 1000.0)
    assert status["rm"] == {"state": "UP", "address": "127.0.0.1:29001", "pid": 7, "reason": ""}
    assert status["slices"][0] == {
        "index": 0,
        "state": "READY",
        "since": 5.0,
        "reason": "every host answers",
        "incarnation": 2,
        "task": "7_0",
        "nodes": ["n0", "n1"],
        "hosts": [
            {"node": "n0", "address": "127.0.1.1", "pid": 11},
            {"node": "n1", "address": "127.0.1.2", "pid": 12},
        ],
        "budgets": {"crash": {"left": 9, "limit": 10, "window_s": 600.0}},
    }
    assert status["slices"][1]["state"] == "PENDING"
