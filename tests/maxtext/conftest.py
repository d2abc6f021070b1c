# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""One cluster and one service of two slices for all workloads."""

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from slurm.devcluster.cluster import DevCluster
from slurm.devcluster.options import Options
from tests.e2e.service import CHECKOUT
from tests.maxtext.workload import PATIENCE_S
from tests.slurm.service.service import SlurmService

# A program that ends before it has its job requeued in it, however slow the machine is.
GRACE_S = 60


@pytest.fixture(scope="session")
def environment() -> Path:
    """The environment that has MaxText; scripts/setup_env.sh --maxtext makes it."""
    functions = "source scripts/lib/common.sh; source scripts/lib/installation.sh"
    done = subprocess.run(
        ["bash", "-c", f'{functions}; installation::maxtext_environment "$PWD"'],
        cwd=CHECKOUT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


@pytest.fixture(scope="session")
def service(environment: Path) -> Iterator[SlurmService]:
    """Ready, with two slices of one host, of which one is enough; a third node is free."""
    # pytest's directories have names too long for the daemons' sockets.
    with tempfile.TemporaryDirectory(prefix="devcluster-") as path:
        options = Options(
            Path(path) / "c",
            slices=3,
            hosts_per_slice=1,
            cred_expire_s=5,
            kill_wait_s=5,
            grace_time_s=GRACE_S,
        )
        with DevCluster(options) as cluster:
            one = SlurmService(
                Path(path) / "home",
                cluster,
                SLICE_SHAPE="1x1",
                # Its version of JAX is the service's by being the same environment.
                PATHWAYS_ENVIRONMENT=str(environment),
                PATHWAYS_SLURM_EXTRA_ARGS="--exclude=tpu-2-0",
                # MaxText compiles on all CPUs of this machine, and everything else waits for that.
                PATHWAYS_SLURM_TIMEOUT_S="30",
                PATHWAYS_HEARTBEAT_TIMEOUT_S="60",
                PATHWAYS_LEASE_S="120",
            )
            try:
                one.sbatch()
                one.wait_for("READY", timeout_s=PATIENCE_S)
                yield one
            finally:
                one.close()
