# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Nodes that fail, of a service whose user is the cluster's administrator."""

import os
import signal
from collections.abc import Callable

from slurm.devcluster.cluster import DevCluster
from tests.e2e.service import wait_until
from tests.slurm.service.service import SlurmService

EXCLUSION_S = 15


def test_nodes_of_a_slice_that_falls_silent_are_made_anew_and_kept_off_for_a_while(
    make: Callable[..., SlurmService], cluster: DevCluster
) -> None:
    service = make(
        PATHWAYS_HEARTBEAT_TIMEOUT_S="3",
        PATHWAYS_NODE_BUDGET="1",
        PATHWAYS_NODE_EXCLUSION_S=str(EXCLUSION_S),
    )
    service.sbatch()
    service.wait_for("READY", timeout_s=60)
    before = service.wait_for_slice(1, "READY")
    nodes = before["nodes"]

    def said(reason: str) -> set[str]:
        return {e["subject"] for e in service.events() if e["reason"] == reason}

    def wait_for_events(reason: str) -> None:
        wanted = {f"node {name}" for name in nodes}
        wait_until(lambda: said(reason) == wanted, 60.0, f"{reason} for {nodes}: {service.logs()}")

    os.kill(service.worker_on(cluster.node(nodes[0]).address), signal.SIGSTOP)
    after = service.wait_for_slice(1, "READY", above=before["incarnation"], timeout_s=90)
    assert set(after["nodes"]).isdisjoint(nodes)
    wait_for_events("NodeExcluded")
    wait_for_events("NodePoweredDown")
    wait_until(
        lambda: not any(cluster.processes(node) for node in nodes), 30.0, "the nodes are off"
    )
    wait_for_events("NodeTriedAgain")
    assert service.status()["service"] == "READY"
    # They are booted for whoever uses them next.
    cluster.run("scontrol", "update", f"nodename={','.join(nodes)}", "state=power_up")
    wait_for_events("NodeBack")
    assert said("NodesNotPoweredDown") == set()
