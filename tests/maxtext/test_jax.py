# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""A program of one's own by the script for it, in a job that others have a better right to."""

import pytest
from tests.e2e.service import CHECKOUT, wait_until
from tests.e2e.training import losses, read
from tests.maxtext.workload import JAX, PATIENCE_S, Job
from tests.slurm.service.service import SlurmService

PROGRAM = CHECKOUT / "docs" / "examples" / "train_transformer.py"
SMALL = ("--global-batch=12", "--seq-len=16", "--layers=1", "--width=16")


@pytest.mark.timeout(1800)
def test_a_job_whose_program_ends_in_the_grace_time_is_requeued_and_resumes(
    service: SlurmService,
) -> None:
    checkpoints, metrics = service.home / "checkpoints", service.home / "metrics"
    job = Job(
        service,
        JAX,
        *("--", "srun", "python", str(PROGRAM), *SMALL, "--steps=1000000"),
        *("--min-step-time=0.05", "--checkpoint-period=5"),
        *(f"--checkpoint-dir={checkpoints}", f"--metrics={metrics}"),
        options=("--partition=tpu-low", "--nodelist=tpu-2-0"),
    )

    def step_after(count: int) -> bool:
        job.expect_alive()
        return any(event["event"] == "step" for event in read(metrics)[count:])

    wait_until(lambda: 11 in losses(read(metrics)), PATIENCE_S, lambda: job.tail(), 0.2)
    # Slurm tells the step of a preempted job, here the program, to end; not the batch script.
    better = service.cluster.run(
        *("sbatch", "--parsable", "--partition=tpu", "--nodelist=tpu-2-0"),
        *("--output=/dev/null", "--wrap=sleep 600"),
    ).stdout.strip()
    service.jobs.append(better)
    # Without the script's doing the job would be FAILED now, on Slurm 22.05.
    job.wait_for("stopped by SIGTERM")
    before = read(metrics)
    service.cluster.run("scancel", better)
    job.wait_for_state("RUNNING", restarts=1)
    wait_until(lambda: step_after(len(before)), PATIENCE_S, lambda: job.tail(), 0.2)
    service.cluster.run("scancel", job.id)

    resumed = losses(read(metrics)[len(before) :])
    assert min(resumed) > 10
    assert min(losses(before)) == 1
