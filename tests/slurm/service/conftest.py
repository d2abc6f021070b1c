# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""One cluster for all services, and services that leave it as they found it."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from slurm.devcluster.cluster import DevCluster
from slurm.devcluster.options import Options
from tests.slurm.service.service import SlurmService


@pytest.fixture(scope="session")
def cluster() -> Iterator[DevCluster]:
    """Two CPU nodes and three slices of two nodes."""
    # pytest's directories have names too long for the daemons' sockets.
    with tempfile.TemporaryDirectory(prefix="devcluster-") as path:
        options = Options(Path(path) / "c", cpu_nodes=2, cred_expire_s=5, kill_wait_s=5)
        with DevCluster(options) as up:
            yield up


@pytest.fixture
def make(cluster: DevCluster, tmp_path: Path) -> Iterator[Callable[..., SlurmService]]:
    """Makes services, each with a directory and settings of its own."""
    made: list[SlurmService] = []

    def one(name: str = "one", **settings: str) -> SlurmService:
        (tmp_path / name).mkdir()
        made.append(SlurmService(tmp_path / name / "home", cluster, **settings))
        return made[-1]

    yield one
    for service in made:
        service.close()


@pytest.fixture
def service(make: Callable[..., SlurmService]) -> SlurmService:
    """A service of two slices, one of which is enough; not started."""
    return make()
