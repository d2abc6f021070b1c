# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""One cluster for all tests of the Slurm scheduler."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from slurm.devcluster.cluster import DevCluster
from slurm.devcluster.options import Options
from tests.slurm.scheduler.harness import SlurmHarness


@pytest.fixture(scope="session")
def cluster() -> Iterator[DevCluster]:
    """Four slices of two nodes; a requeued task waits for two minutes, as on real clusters."""
    # pytest's directories have names too long for the daemons' sockets.
    with tempfile.TemporaryDirectory(prefix="devcluster-") as path:
        options = Options(Path(path) / "c", slices=4, cred_expire_s=120, kill_wait_s=1)
        with DevCluster(options) as up:
            yield up


@pytest.fixture
def harness(cluster: DevCluster, tmp_path: Path) -> Iterator[SlurmHarness]:
    """The scheduler, as the contract suite wants it."""
    made = SlurmHarness(tmp_path, cluster)
    yield made
    made.close()
