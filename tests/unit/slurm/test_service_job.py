# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Whether Slurm still takes the service's own job for running."""

from dataclasses import replace

import pytest

from pathways_slurm.scheduler.slurm_parse import Row
from pathways_slurm.scheduler.slurm_service_job import ServiceJob
from pathways_slurm.states import TaskState

ROW = Row(
    "44", "44", None, TaskState.RUNNING, "", 0, "", 1.0, 2.0, 0.0, 0.0, "cpu0", "", "pathways"
)
JOB = ServiceJob("44", 0)


@pytest.mark.parametrize(
    ("environ", "job"),
    [
        ({}, None),
        ({"SLURM_JOB_ID": ""}, None),
        ({"SLURM_JOB_ID": "44"}, JOB),
        ({"SLURM_JOB_ID": "44", "SLURM_RESTART_COUNT": "2"}, ServiceJob("44", 2)),
    ],
)
def test_the_job_is_that_of_the_environment(
    environ: dict[str, str], job: ServiceJob | None
) -> None:
    assert ServiceJob.of(environ) == job


@pytest.mark.parametrize(
    "state",
    [TaskState.RUNNING, TaskState.CONFIGURING, TaskState.COMPLETING, TaskState.UNKNOWN],
)
def test_a_job_that_runs_is_left_alone(state: TaskState) -> None:
    assert JOB.eviction([replace(ROW, state=state)]) == ""


@pytest.mark.parametrize("state", [TaskState.PENDING, TaskState.NODE_FAIL, TaskState.CANCELLED])
def test_a_job_that_slurm_gave_up_is_over(state: TaskState) -> None:
    assert state.value in JOB.eviction([replace(ROW, state=state)])


def test_a_job_that_runs_again_elsewhere_is_over_here() -> None:
    assert "requeued" in JOB.eviction([replace(ROW, restarts=1)])
    assert ServiceJob("44", 1).eviction([replace(ROW, restarts=1)]) == ""


def test_a_job_that_is_not_listed_says_nothing() -> None:
    assert JOB.eviction([replace(ROW, id="45")]) == ""
    assert JOB.eviction([]) == ""
