# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""slurm_ends.py: what ended a run, from what srun and slurmstepd wrote (as seen on 22.05)."""

import pytest

from pathways_slurm.scheduler.slurm_ends import HostEnd, ended_for, first_end

RUN = "=== slice 1 incarnation {}: Slurm job 44 on tpu-3-0,tpu-3-1 2026-11-29T16:25:14+0000 ===\n"

KILLED = """\
srun: error: tpu-3-1: task 1: Killed
srun: launch/slurm: _step_signal: Terminating StepId=2.0
slurmstepd-tpu-3-0: error: *** STEP 2.0 ON tpu-3-0 CANCELLED AT 2026-11-29T16:26:42 ***
srun: error: tpu-3-0: task 0: Terminated
srun: Force Terminated StepId=2.0
"""
EXITED = """\
srun: error: tpu-3-0: task 0: Exited with exit code 3
srun: launch/slurm: _step_signal: Terminating StepId=4.0
srun: error: tpu-3-1: task 1: Killed
"""
EXITED_0 = """\
srun: First task exited 5s ago
srun: StepId=1.0 task 1: running
srun: StepId=1.0 task 0: exited
srun: launch/slurm: _step_signal: Terminating StepId=1.0
srun: Job step aborted: Waiting up to 3 seconds for job step to finish.
srun: error: tpu-3-1: task 1: Killed
"""


@pytest.mark.parametrize(
    ("account", "expected"),
    [
        (KILLED, HostEnd(1, None, 9)),
        (EXITED, HostEnd(0, 3, None)),
        (EXITED_0, HostEnd(0, 0, None)),
        ("srun: error: a-[0-3]: tasks 2-5: Aborted (core dumped)\n", HostEnd(2, None, 6)),
        ("srun: error: a: tasks 0,2: Exited with exit code 137\n", HostEnd(0, 137, None)),
        ("srun: error: a: task 0: Segmentation fault\n", HostEnd(0, None, 11)),
        ("srun: error: a: task 0: something new\n", None),
        ("srun: error: Unable to create step for job 3: Socket timed out\n", None),
        ("", None),
    ],
)
def test_the_first_end_counts(account: str, expected: HostEnd | None) -> None:
    assert first_end(RUN.format(1) + account, 1) == expected


def test_each_run_has_its_own() -> None:
    log = RUN.format(4) + KILLED + RUN.format(5) + EXITED + RUN.format(6)
    assert first_end(log, 4) == HostEnd(1, None, 9)
    assert first_end(log, 5) == HostEnd(0, 3, None)
    assert first_end(log, 6) is None
    assert first_end(log, 7) is None


CANCELLED = """\
srun: error: Node failure on tpu-6-1
slurmstepd-tpu-6-0: error: *** JOB 3 ON tpu-6-0 CANCELLED AT 2026-11-30T06:26:01 DUE TO {} ***
slurmstepd-tpu-6-0: error: *** STEP 3.0 ON tpu-6-0 CANCELLED AT 2026-11-30T06:26:01 DUE TO {} ***
"""


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS", "a node of it failed"),
        ("JOB REQUEUE", "requeued by order (scontrol requeue)"),
        ("PREEMPTION", "preempted"),
        ("TIME LIMIT", "its time limit was reached"),
        ("JOB NOT ENDING WITH SIGNALS", "ended by Slurm: job not ending with signals"),
    ],
)
def test_why_slurm_ended_a_run(word: str, why: str) -> None:
    log = RUN.format(4) + CANCELLED.format(word, word) + RUN.format(5) + KILLED
    assert ended_for(log, 4) == why
    assert ended_for(log, 5) == ""
    assert ended_for(log, 6) == ""


def test_in_words() -> None:
    assert str(HostEnd(1, None, 9)) == "host 1 was ended by signal 9"
    assert str(HostEnd(0, 3, None)) == "host 0 exited with code 3"
