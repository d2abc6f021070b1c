# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Command lines and environments as started by Slurm, read from /proc."""

import sys
import tempfile
from pathlib import Path

import pytest
from slurm.devcluster.cluster import DevCluster
from slurm.devcluster.options import Options
from tests.slurm.service import golden
from tests.slurm.service.service import SlurmService

# Beside this interpreter, by their scripts.
PROGRAMS = (
    [str(Path(sys.executable).with_name("pathways-emulator-server"))],
    [str(Path(sys.executable).with_name("pathways-emulator-proxy-server"))],
)


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
                service.sbatch()
                status = service.wait_for("READY", timeout_s=90)
                golden.check(
                    service,
                    status,
                    golden.oracle_of(tpu_type, shape, hosts),
                    instance_type,
                    "gs://golden-bucket/pathways-scratch/shared",
                    PROGRAMS,
                )
            finally:
                service.close()
