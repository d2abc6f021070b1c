# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What the processes of a service are started with, for comparison with what /proc says of them.

The command lines are those of Pathways' documentation for Slurm clusters, written out here; the TPU
environment is that of ``tests/data/tpu_topologies.csv``.
"""

import csv
from pathlib import Path
from typing import Any

from tests.e2e.service import CHECKOUT
from tests.slurm.service.service import SlurmService

# The variables that make a process a part of a slice; anything else is the user's or Slurm's own.
_OURS = ("TPU_", "MEGASCALE_", "PATHWAYS_", "CHIPS_", "HOST_BOUNDS", "ENABLE_", "IFRT_", "JAX_")


def oracle_of(tpu_type: str, shape: str, hosts: int) -> dict[str, str]:
    with (CHECKOUT / "tests" / "data" / "tpu_topologies.csv").open(newline="") as file:
        (row,) = [
            row
            for row in csv.DictReader(file)
            if (row["gen"], row["topology"], row["hosts"]) == (tpu_type, shape, str(hosts))
        ]
    return row


def argv(pid: int) -> tuple[list[str], list[str]]:
    """The words up to the first flag of Pathways, without the interpreter; and the rest."""
    words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")[1:-1]
    flags = next(place for place, word in enumerate(words) if word.startswith("--"))
    return words[:flags], words[flags:]


def environment(pid: int) -> dict[str, str]:
    """All of it."""
    items = Path(f"/proc/{pid}/environ").read_text().split("\0")
    return dict(item.split("=", 1) for item in items if "=" in item)


def _ours(pid: int) -> dict[str, str]:
    return {name: value for name, value in environment(pid).items() if name.startswith(_OURS)}


def check(
    service: SlurmService,
    status: dict[str, Any],
    oracle: dict[str, str],
    instance_type: str,
    scratch_location: str,
    programs: tuple[list[str], list[str]],
) -> list[int]:
    """Compares every process of a service of two slices, all of which are up.

    Args:
        service: It, with a lease of 20 s.
        status: Of it.
        oracle: What :func:`oracle_of` has for its slices.
        instance_type: As the resource manager is told.
        scratch_location: Likewise.
        programs: The words by which server and proxy are run, after the interpreter.

    Returns:
        The processes.
    """
    server, proxy = programs
    hosts = int(oracle["hosts"])
    rm_address = status["rm"]["address"]
    ip = rm_address.partition(":")[0]
    scratch = f"--gcs_scratch_location={scratch_location}"

    assert argv(status["rm"]["pid"]) == (
        server,
        [
            "--server_port=29001",
            "--node_type=resource_manager",
            f"--instance_type={instance_type}",
            "--instance_count=2",
            scratch,
            "--enable_gcs_olm=false",
        ],
    )
    assert _ours(status["rm"]["pid"]) == {
        "TPU_SKIP_MDS_QUERY": "true",
        "PATHWAYS_BIND_ADDRESS": ip,
        "PATHWAYS_HEARTBEAT_TIMEOUT_S": "10",
        "PATHWAYS_ORDERS_FILE": f"{service.home}/state/orders.json",
        "PATHWAYS_REPORT_FILE": f"{service.home}/state/report.json",
    }

    assert argv(status["proxy"]["pid"]) == (
        proxy,
        [
            "--server_port=29000",
            f"--resource_manager_address={ip}:29001",
            scratch,
            "--num_elastic_instances=2",
        ],
    )
    assert _ours(status["proxy"]["pid"]) == {
        "IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS": "true",
        "PATHWAYS_BIND_ADDRESS": ip,
        "PATHWAYS_ON_NOTICE": "suspend",
    }

    pids = [status["rm"]["pid"], status["proxy"]["pid"]]
    for index, item in enumerate(status["slices"]):
        addresses = [host["address"] for host in item["hosts"]]
        assert len(addresses) == hosts
        names = sorted(item["nodes"])
        assert names == item["nodes"], "in node order"
        for host, address in enumerate(addresses):
            pid = service.worker_on(address)
            assert argv(pid) == (
                server,
                [
                    "--server_port=29001",
                    f"--resource_manager_address={ip}:29001",
                    scratch,
                    "--enable_gcs_olm=false",
                ],
            )
            ports = ",".join(str(8431 + chip) for chip in range(int(oracle["chips_per_host"])))
            wrap = {"TPU_TOPOLOGY_WRAP": oracle["TPU_TOPOLOGY_WRAP"]}
            assert _ours(pid) == wrap | {
                "TPU_TOPOLOGY": oracle["topology"],
                "TPU_ACCELERATOR_TYPE": oracle["TPU_ACCELERATOR_TYPE"],
                "TPU_CHIPS_PER_HOST_BOUNDS": oracle["TPU_CHIPS_PER_HOST_BOUNDS"],
                "TPU_HOST_BOUNDS": oracle["TPU_HOST_BOUNDS"],
                "CHIPS_PER_HOST_BOUNDS": oracle["TPU_CHIPS_PER_HOST_BOUNDS"],
                "HOST_BOUNDS": oracle["TPU_HOST_BOUNDS"],
                "TPU_TOPOLOGY_ALT": "false",
                "TPU_SKIP_MDS_QUERY": "true",
                "TPU_RUNTIME_METRICS_PORTS": ports,
                "TPU_WORKER_ID": str(host),
                "TPU_WORKER_HOSTNAMES": ",".join(addresses),
                "MEGASCALE_NUM_SLICES": "2",
                "MEGASCALE_SLICE_ID": str(index),
                "MEGASCALE_COORDINATOR_ADDRESS": ip,
                "PATHWAYS_BIND_ADDRESS": address,
                "PATHWAYS_LEASE_S": "20",
                "PATHWAYS_NOTICE_S": "25",
                "PATHWAYS_SLICE_INDEX": str(index),
                "PATHWAYS_HOST_INDEX": str(host),
                "PATHWAYS_NODE_NAMES": ",".join(item["nodes"]),
                "PATHWAYS_NODE_ADDRESSES": ",".join(addresses),
                "PATHWAYS_INCARNATION": "1",
            }
            pids.append(pid)
    assert len(pids) == 2 + 2 * hosts
    return pids
