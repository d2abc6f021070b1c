# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""A cluster for all tests that leave it as they found it."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from slurm.devcluster import lifecycle
from slurm.devcluster.cluster import DevCluster
from slurm.devcluster.options import Options
from tests.slurm.devcluster.jobs import PATIENCE_S, Jobs

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def directory() -> Iterator[Path]:
    """For a cluster, which is ended after the test; pytest's name is too long for its sockets."""
    with tempfile.TemporaryDirectory(prefix="devcluster-") as path:
        yield Path(path) / "c"
        lifecycle.down(Path(path) / "c")


@pytest.fixture(scope="session")
def shared() -> Iterator[DevCluster]:
    """Two slices of two nodes; a requeued task waits for 5 s."""
    with tempfile.TemporaryDirectory(prefix="devcluster-") as path:
        options = Options(Path(path) / "c", slices=2, cred_expire_s=5, kill_wait_s=2)
        with DevCluster(options) as cluster:
            yield cluster


@pytest.fixture
def jobs(shared: DevCluster, tmp_path: Path) -> Iterator[Jobs]:
    submitted = Jobs(shared, tmp_path)
    yield submitted
    submitted.end()
    rest = {"idle", "idle~"}
    shared.wait_for_states(
        lambda states: bool(states) and set(states.values()) <= rest,
        timeout_s=PATIENCE_S,
    )
