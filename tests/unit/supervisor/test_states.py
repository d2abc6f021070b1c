# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""states.py: Slurm's words, and what counts as an end."""

import pytest

from pathways_slurm.states import TaskState, task_state

# JOB STATE CODES of the squeue and sacct manuals, in both spellings where they have two.
ENDED_WORDS = {
    "BOOT_FAIL": TaskState.NODE_FAIL,
    "CANCELLED": TaskState.CANCELLED,
    "COMPLETED": TaskState.COMPLETED,
    "DEADLINE": TaskState.TIMEOUT,
    "FAILED": TaskState.FAILED,
    "NODE_FAIL": TaskState.NODE_FAIL,
    "OUT_OF_MEMORY": TaskState.FAILED,
    "PREEMPTED": TaskState.PREEMPTED,
    "REVOKED": TaskState.CANCELLED,
    "TIMEOUT": TaskState.TIMEOUT,
}
ALIVE_WORDS = {
    "COMPLETING": TaskState.COMPLETING,
    "CONFIGURING": TaskState.CONFIGURING,
    "PENDING": TaskState.PENDING,
    "REQUEUED": TaskState.PENDING,
    "REQUEUE_FED": TaskState.PENDING,
    "REQUEUE_HOLD": TaskState.HELD,
    "RESIZING": TaskState.RUNNING,
    "RUNNING": TaskState.RUNNING,
    "SIGNALING": TaskState.RUNNING,
    "SPECIAL_EXIT": TaskState.HELD,
    "STAGE_OUT": TaskState.COMPLETING,
    "STOPPED": TaskState.RUNNING,
    "SUSPENDED": TaskState.RUNNING,
}


@pytest.mark.parametrize(("word", "state"), (ENDED_WORDS | ALIVE_WORDS).items())
def test_every_word_of_slurm(word: str, state: TaskState) -> None:
    assert task_state(word) is state
    assert task_state(word).ended is (word in ENDED_WORDS)


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("CANCELLED by 1000", TaskState.CANCELLED),
        ("CANCELLED+", TaskState.CANCELLED),
        ("  RUNNING \n", TaskState.RUNNING),
        ("running", TaskState.RUNNING),
    ],
)
def test_a_word_as_the_commands_print_it(word: str, state: TaskState) -> None:
    assert task_state(word) is state


@pytest.mark.parametrize("word", ["", " ", "+", "POWERING_SIDEWAYS", "R", "RUNNING,COMPLETING"])
def test_an_unknown_word_stays_unknown_and_is_no_end(word: str) -> None:
    assert task_state(word) is TaskState.UNKNOWN
    assert not TaskState.UNKNOWN.ended
