# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Jobs on the cluster: what a service relies on."""

import re
from pathlib import Path

from slurm.devcluster.cluster import DevCluster
from tests.slurm.devcluster.jobs import Jobs, Row, until

SRUN = "srun --nodes=2 --ntasks-per-node=1"


def test_a_job_of_two_nodes_is_in_one_slice(jobs: Jobs) -> None:
    script = f"{SRUN} bash -c 'echo on $SLURMD_NODENAME in $DEVCLUSTER_NODE; sleep 600'"
    job = jobs.submit(script, "--partition=tpu", "--nodes=2", "--array=0-1", "--gres=tpu:4")
    nodes = {row.nodes for row in jobs.running(job)}
    assert nodes == {"tpu-0-[0-1]", "tpu-1-[0-1]"}
    until(lambda: len(jobs.log().splitlines()) == 4, "every host has spoken")
    assert sorted(jobs.log().splitlines()) == [
        f"on {node} in {node}" for node in ("tpu-0-0", "tpu-0-1", "tpu-1-0", "tpu-1-1")
    ]


def test_a_job_of_more_nodes_than_a_slice_is_refused(shared: DevCluster, tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\n")
    done = shared.run("sbatch", "--partition=tpu", "--nodes=3", script, check=False)
    assert done.returncode != 0
    assert "Requested node configuration is not available" in done.stderr


def test_a_job_without_a_partition_runs_on_the_cpu_node(jobs: Jobs) -> None:
    (row,) = jobs.running(jobs.submit("sleep 600"))
    assert row.nodes == "cpu0"


def test_a_requeued_task_waits_unless_told_to_start_and_counts(jobs: Jobs) -> None:
    script = f"echo restart ${{SLURM_RESTART_COUNT-none}}; {SRUN} sleep 600"
    job = jobs.submit(script, "--partition=tpu", "--nodes=2", "--array=0-1")
    jobs.running(job)
    jobs.cluster.run("scontrol", "requeue", f"{job}_1")
    jobs.wait(f"{job}_1", "waits", lambda row: (row.state, row.reason) == ("PENDING", "BeginTime"))
    # Not in the second in which the first run ended: Slurm would take the two for one and kill it.
    jobs.cluster.run("scontrol", "update", f"jobid={job}_1", "StartTime=now+2")
    restarts = {row.id: row.restarts for row in jobs.running(job)}
    assert restarts == {f"{job}_0": 0, f"{job}_1": 1}
    until(lambda: jobs.log().count("restart") == 3, "the second run has spoken")
    assert sorted(re.findall("restart .*", jobs.log())) == [
        "restart 1",
        "restart none",
        "restart none",
    ]


def test_a_job_of_high_priority_takes_the_nodes_of_a_low_one(jobs: Jobs) -> None:
    # A script that ends by itself when it is preempted counts as FAILED on Slurm 22.05, by a race.
    stays = f"trap '' TERM\n{SRUN} sleep 600\nsleep 600 >/dev/null 2>&1"
    low = jobs.submit(stays, "--partition=tpu-low", "--nodes=2", "--array=0-1")
    jobs.running(low)
    high = jobs.submit(f"{SRUN} sleep 600", "--partition=tpu", "--nodes=2")
    jobs.running(high)

    def preempted(rows: list[Row]) -> bool:
        waiting, runs = sorted(rows, key=lambda row: row.state)
        # Slurm may take both for a moment, and give one its nodes back.
        return (waiting.state, waiting.restarts, runs.state) == ("PENDING", 1, "RUNNING")

    jobs.wait_for_rows(low, "one of the low tasks is requeued, and one runs", preempted)
