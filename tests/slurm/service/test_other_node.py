# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The service's own job is started again by Slurm, on another node: its address is a new one."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from slurm.devcluster.cluster import DevCluster
from tests.e2e.service import wait_until
from tests.slurm.service.service import SlurmService


def _ready(service: SlurmService) -> tuple[str, str]:
    """The job and the node that it runs on."""
    job = service.sbatch()
    service.wait_for("READY", timeout_s=60)
    service.wait_for_slice(1, "READY")
    return job, _row(service, job)["nodes"]


def _row(service: SlurmService, job: str) -> dict[str, Any]:
    return next(row for row in service.queue() if row["job"] == job)


@contextmanager
def _drained(cluster: DevCluster, node: str) -> Iterator[None]:
    """No job starts on the node meanwhile."""
    cluster.run("scontrol", "update", f"nodename={node}", "state=drain", "reason=test")
    try:
        yield
    finally:
        cluster.run("scontrol", "update", f"nodename={node}", "state=resume")
        cluster.wait_for_states(lambda states: states.get(node) == "idle", timeout_s=60)


def _address(cluster: DevCluster, node: str) -> str:
    return next(n.address for n in cluster.nodes if n.name == node)


def _expect_on_another_node(service: SlurmService, job: str, before: dict[str, Any]) -> None:
    """The job's second run serves, and nothing of the first one is left."""

    def again() -> bool:
        status = service.status()
        return bool(status["service"] == "READY" and status["run_id"] != before["run_id"])

    wait_until(again, 110.0, f"it serves again: {service.logs()}", 0.2)
    row = _row(service, job)
    assert (row["state"], row["restarts"]) == ("RUNNING", "1")
    address = _address(service.cluster, row["nodes"])
    after = service.status()
    assert after["rm"]["address"].partition(":")[0] == address
    assert after["rm"]["address"] != before["rm"]["address"]
    assert f"JAX_BACKEND_TARGET=grpc://{address}:" in (service.home / "cluster.env").read_text()
    service.wait_for_slice(1, "READY")
    live = service.tasks()
    assert sorted(task["id"].rpartition("_")[2] for task in live) == ["0", "1"], live
    assert all(after["run_id"] in task["name"] for task in live), live
    assert not (service.home / "logs" / "cleanup.log").exists(), "the job had not ended"


def test_a_service_that_is_requeued_comes_up_on_another_node(
    service: SlurmService, cluster: DevCluster
) -> None:
    job, node = _ready(service)
    before = service.status()
    with _drained(cluster, node):
        cluster.run("scontrol", "requeue", job)
        _expect_on_another_node(service, job, before)
        cluster.run("scancel", job)
        service.expect_nothing_left()


def test_a_service_whose_node_fails_comes_up_on_another_and_the_first_one_gives_way(
    service: SlurmService, cluster: DevCluster
) -> None:
    """Slurm starts it anew while the processes of the first run are still there."""
    job, node = _ready(service)
    before = service.status()
    cluster.kill_slurmd(node)
    try:
        _expect_on_another_node(service, job, before)
        cluster.run("scancel", job)
        service.expect_nothing_left()
    finally:
        cluster.start_slurmd(node)
        cluster.wait_for_states(lambda states: states.get(node) == "idle", timeout_s=60)
