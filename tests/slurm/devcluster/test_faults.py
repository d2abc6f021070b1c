# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What is done to a cluster: nodes and slurmctld that die, hang and come back."""

import pytest
from slurm.devcluster.cluster import DevCluster
from slurm.devcluster.machines import MachineError
from tests.slurm.devcluster.jobs import PATIENCE_S, Jobs, until

SLEEP = "srun --nodes=2 --ntasks-per-node=1 sleep 600"


def _runs_task(cluster: DevCluster, node: str) -> bool:
    return any(one.process.name() == "sleep" for one in cluster.processes(node))


def test_power_down_force_ends_a_node_and_a_job_brings_it_back(jobs: Jobs) -> None:
    cluster = jobs.cluster
    job = jobs.submit(SLEEP, "--partition=tpu", "--nodes=2", "--array=0")
    jobs.running(job)
    nodes = jobs.rows(job)[0].nodes.replace("[0-1]", "{}")
    one, other = nodes.format(0), nodes.format(1)
    cluster.run("scontrol", "update", f"nodename={one},{other}", "state=power_down_force")
    until(lambda: not cluster.processes(one) + cluster.processes(other), "both nodes are off")
    until(lambda: jobs.rows(job)[0].restarts == 1, "the task is requeued")
    cluster.wait_for_states(
        lambda states: {states.get(one), states.get(other)} == {"idle~"}, PATIENCE_S
    )
    # No batch job: whether the nodes of one that they are booted for are up, Slurm looks at only
    # every 30 s.
    said = cluster.run(
        *("srun", "--partition=tpu", "--nodes=2", "--ntasks-per-node=1"),
        *(f"--nodelist={one},{other}", "bash", "-c", "echo $SLURMD_NODENAME"),
    )
    assert sorted(said.stdout.split()) == [one, other], said
    assert {one, other} <= cluster.pids.keys()


def test_jobs_outlive_their_slurmd(jobs: Jobs) -> None:
    cluster = jobs.cluster
    (row,) = jobs.running(jobs.submit(SLEEP, "--partition=tpu", "--nodes=2"))
    node = row.nodes.replace("[0-1]", "1")
    until(lambda: _runs_task(cluster, node), "the task runs")
    before = {one.process for one in cluster.processes(node) if one.daemon != "slurmd"}
    cluster.kill_slurmd(node)
    assert node not in cluster.pids
    assert {one.process for one in cluster.processes(node)} == before
    cluster.start_slurmd(node)
    assert node in cluster.pids


def test_a_power_cut_ends_everything_on_one_node_and_nothing_elsewhere(jobs: Jobs) -> None:
    cluster = jobs.cluster
    (row,) = jobs.running(jobs.submit(SLEEP, "--partition=tpu", "--nodes=2"))
    node, other = (row.nodes.replace("[0-1]", host) for host in "10")
    until(lambda: _runs_task(cluster, node), "the task runs")
    slurmd = cluster.pids[other]
    cluster.power_off(node)
    assert cluster.processes(node) == []
    assert cluster.pids[other] == slurmd
    cluster.power_on(node)
    assert node in cluster.pids


def test_nodes_that_share_a_machine_can_not_be_cut_off(shared: DevCluster) -> None:
    with pytest.raises(MachineError, match=r"cpu0 can't be cut off.*--namespaces"):
        shared.partition("cpu0")


def test_slurmctld_ends_and_returns_with_its_jobs(jobs: Jobs) -> None:
    cluster = jobs.cluster
    job = jobs.submit("sleep 600")
    jobs.running(job)
    cluster.stop_slurmctld()
    assert cluster.node_states() == {}
    assert "slurmctld" not in cluster.pids
    cluster.start_slurmctld()
    until(cluster.node_states, "slurmctld answers")
    (row,) = jobs.running(job)
    assert row.restarts == 0


def test_slurmctld_hangs_and_goes_on(shared: DevCluster) -> None:
    shared.hang_slurmctld()
    try:
        done = shared.run("squeue", "-h", check=False)
        assert done.returncode != 0
        assert "timed out" in done.stderr
    finally:
        shared.resume_slurmctld()
    until(shared.node_states, "slurmctld answers")
