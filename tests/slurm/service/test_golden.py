# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Command lines and environments as started by Slurm, read from /proc.

The command lines are those of Pathways' documentation for Slurm clusters, written out here; the TPU
environment is that of ``tests/data/tpu_topologies.csv``.
"""

import csv
import tempfile
from pathlib import Path

import pytest
from slurm.devcluster.cluster import DevCluster
from slurm.devcluster.options import Options
from tests.e2e.service import CHECKOUT
from tests.slurm.service.service import SlurmService

# The variables that make a process a part of a slice; anything else is the user's or Slurm's own.
_OURS = ("TPU_", "MEGASCALE_", "PATHWAYS_", "CHIPS_", "HOST_BOUNDS", "ENABLE_", "IFRT_", "JAX_")


def _oracle(tpu_type: str, shape: str, hosts: int) -> dict[str, str]:
    with (CHECKOUT / "tests" / "data" / "tpu_topologies.csv").open(newline="") as file:
        (row,) = [
            row
            for row in csv.DictReader(file)
            if (row["gen"], row["topology"], row["hosts"]) == (tpu_type, shape, str(hosts))
        ]
    return row


def _argv(pid: int) -> list[str]:
    words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")[:-1]
    # The emulator's programs are scripts: the interpreter comes first.
    return [Path(words[1]).name, *words[2:]]


def _environment(pid: int) -> dict[str, str]:
    items = Path(f"/proc/{pid}/environ").read_text().split("\0")
    pairs = (item.split("=", 1) for item in items if "=" in item)
    return {name: value for name, value in pairs if name.startswith(_OURS)}


@pytest.mark.parametrize(
    ("tpu_type", "shape", "hosts", "instance_type"),
    [
        ("v6e", "2x4", 2, "tpuv6e:2x4"),
        ("v6e", "4x4", 4, "tpuv6e:4x4"),
        ("v5p", "2x2x4", 4, "tpuv5:2x2x4"),
    ],
)
def test_everything_is_started_as_documented(
    tmp_path: Path, tpu_type: str, shape: str, hosts: int, instance_type: str
) -> None:
    with tempfile.TemporaryDirectory(prefix="devcluster-") as directory:
        options = Options(
            Path(directory) / "c",
            slices=2,
            hosts_per_slice=hosts,
            tpu_type=tpu_type,
            cred_expire_s=5,
            kill_wait_s=5,
        )
        with DevCluster(options) as cluster:
            service = SlurmService(
                tmp_path / "home",
                cluster,
                TPU_TYPE=tpu_type,
                SLICE_SHAPE=shape,
                MIN_SLICES="2",
                GCS_BUCKET="golden-bucket",
                PATHWAYS_LEASE_S="20",
                # What a user's shell may have from somewhere else.
                MEGASCALE_NUM_SLICES="64",
                TPU_WORKER_ID="63",
            )
            try:
                _check(service, _oracle(tpu_type, shape, hosts), hosts, instance_type)
            finally:
                service.close()


def _check(service: SlurmService, oracle: dict[str, str], hosts: int, instance_type: str) -> None:
    service.sbatch()
    status = service.wait_for("READY", timeout_s=90)
    rm_address = status["rm"]["address"]
    ip = rm_address.partition(":")[0]
    scratch = "--gcs_scratch_location=gs://golden-bucket/pathways-scratch/shared"

    assert _argv(status["rm"]["pid"]) == [
        "pathways-emulator-server",
        "--server_port=29001",
        "--node_type=resource_manager",
        f"--instance_type={instance_type}",
        "--instance_count=2",
        scratch,
        "--enable_gcs_olm=false",
    ]
    assert _environment(status["rm"]["pid"]) == {
        "TPU_SKIP_MDS_QUERY": "true",
        "PATHWAYS_BIND_ADDRESS": ip,
        "PATHWAYS_HEARTBEAT_TIMEOUT_S": "10",
        "PATHWAYS_ORDERS_FILE": f"{service.home}/state/orders.json",
        "PATHWAYS_REPORT_FILE": f"{service.home}/state/report.json",
    }

    assert _argv(status["proxy"]["pid"]) == [
        "pathways-emulator-proxy-server",
        "--server_port=29000",
        f"--resource_manager_address={ip}:29001",
        scratch,
        "--num_elastic_instances=2",
    ]
    assert _environment(status["proxy"]["pid"]) == {
        "IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS": "true",
        "PATHWAYS_BIND_ADDRESS": ip,
        "PATHWAYS_ON_NOTICE": "suspend",
    }

    seen = 0
    for index, item in enumerate(status["slices"]):
        addresses = [host["address"] for host in item["hosts"]]
        assert len(addresses) == hosts
        names = sorted(item["nodes"])
        assert names == item["nodes"], "in node order"
        for host, address in enumerate(addresses):
            pid = service.worker_on(address)
            assert _argv(pid) == [
                "pathways-emulator-server",
                "--server_port=29001",
                f"--resource_manager_address={ip}:29001",
                scratch,
                "--enable_gcs_olm=false",
            ]
            ports = ",".join(str(8431 + chip) for chip in range(int(oracle["chips_per_host"])))
            wrap = {"TPU_TOPOLOGY_WRAP": oracle["TPU_TOPOLOGY_WRAP"]}
            assert _environment(pid) == wrap | {
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
            seen += 1
    assert seen == 2 * hosts
