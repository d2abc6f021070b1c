# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Maintenance of a slice whose nodes are Slurm's, by a user who is the cluster's administrator."""

from slurm.devcluster.cluster import DevCluster
from tests.e2e.service import wait_until
from tests.slurm.service.service import SlurmService


def test_the_nodes_of_a_slice_are_free_and_off_and_a_task_waits_for_its_next_run(
    service: SlurmService, cluster: DevCluster
) -> None:
    service.sbatch()
    service.wait_for("READY", timeout_s=60)
    before = service.wait_for_slice(1, "READY")
    done = service.run("maintenance", "1", "--wait", "30s", timeout_s=110)
    assert done.returncode == 0, done.stdout + done.stderr + service.logs()
    assert f"slice 1 is down; its nodes are free: {', '.join(before['nodes'])}" in done.stdout
    # Ended by itself: a task that was cancelled would be so for good.
    (task,) = [row for row in service.tasks(live=False) if row["id"].endswith("_1")]
    assert task["state"] in ("COMPLETED", "FAILED")
    wait_until(
        lambda: not any(cluster.processes(node) for node in before["nodes"]),
        30.0,
        f"the nodes are off: {service.logs()}",
    )
    assert "powered down" in service.status()["slices"][1]["reason"]
    assert service.status()["service"] == "READY"

    assert service.run("maintenance", "--done", "1").returncode == 0
    after = service.wait_for_slice(1, "READY", above=before["incarnation"], timeout_s=90)
    assert after["incarnation"] == before["incarnation"] + 1
