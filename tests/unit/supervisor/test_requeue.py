# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""When a job has Slurm run it once more."""

import dataclasses

import pytest

from pathways_slurm.requeue import Verdict, own_job, verdict
from pathways_slurm.scheduler.slurm_parse import Row
from pathways_slurm.states import TaskState

RUNNING = Row(
    id="44",
    array="44",
    index=None,
    state=TaskState.RUNNING,
    reason="",
    restarts=2,
    exit_status="0",
    submitted=100.0,
    started=200.0,
    ended=0.0,
    preempted=0.0,
    nodes="cpu0",
    comment="",
    name="maxtext",
)
PREEMPTED = dataclasses.replace(RUNNING, preempted=300.0)


@pytest.mark.parametrize("failed", [False, True])
def test_what_was_warned_is_requeued_whatever_it_makes_of_it(failed: bool) -> None:
    assert verdict(RUNNING, failed=failed, warned=True, budget=9) == Verdict(
        True, "job 44 was told that it must end; requeued, 3 of 9"
    )


def test_what_failed_while_preempted_is_requeued() -> None:
    assert verdict(PREEMPTED, failed=True, warned=False, budget=9) == Verdict(
        True, "job 44 is preempted; requeued, 3 of 9"
    )


def test_what_came_to_its_end_while_preempted_is_not() -> None:
    assert verdict(PREEMPTED, failed=False, warned=False, budget=9) == Verdict(False)


def test_the_preemption_of_an_earlier_run_does_not_count() -> None:
    row = dataclasses.replace(RUNNING, preempted=150.0)
    assert verdict(row, failed=True, warned=False, budget=9) == Verdict(False)


def test_what_merely_failed_is_not_requeued() -> None:
    assert verdict(RUNNING, failed=True, warned=False, budget=9) == Verdict(False)


@pytest.mark.parametrize("state", [state for state in TaskState if state != TaskState.RUNNING])
def test_what_slurm_has_decided_stays_so(state: TaskState) -> None:
    row = dataclasses.replace(PREEMPTED, state=state)
    assert verdict(row, failed=True, warned=True, budget=9) == Verdict(False)


def test_a_job_that_slurm_does_not_know_is_left_alone() -> None:
    assert verdict(None, failed=True, warned=True, budget=9) == Verdict(False)


def test_a_budget_that_is_used_up_is_said() -> None:
    due, why = verdict(PREEMPTED, failed=True, warned=True, budget=2)
    assert not due
    assert why == "job 44 is preempted; it has been requeued 2 times, the limit"


def test_an_array_task_is_addressed_as_such() -> None:
    array = {"SLURM_JOB_ID": "45", "SLURM_ARRAY_JOB_ID": "44", "SLURM_ARRAY_TASK_ID": "0"}
    assert own_job(array) == "44_0"
    assert own_job({"SLURM_JOB_ID": "45"}) == "45"
    assert own_job({}) is None
