# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""A cluster whose nodes are namespaces, started by root, and an ordinary user for its jobs."""

import os
import pwd
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from slurm.devcluster import lifecycle
from slurm.devcluster.cluster import DevCluster
from slurm.devcluster.options import Options
from tests.slurm.devcluster.jobs import PATIENCE_S, Jobs

ROOT = Path(__file__).resolve().parents[2]
# Nothing is copied for it once its copy of the checkout is there.
_SET_UP_S = 110.0


@pytest.fixture(scope="session")
def user() -> str:
    """The name of the suites' ordinary user, who has a copy of the checkout."""
    done = subprocess.run(
        [ROOT / "scripts/lib/ordinary.sh", "id", "-un"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=_SET_UP_S,
    )
    return done.stdout.strip()


@pytest.fixture(scope="session")
def copy() -> Path:
    """The checkout that the ordinary user can read."""
    done = subprocess.run(
        [ROOT / "scripts/lib/ordinary.sh", "pwd"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=_SET_UP_S,
    )
    return Path(done.stdout.strip())


@pytest.fixture
def directory() -> Iterator[Path]:
    """For a cluster of all users, which is ended after the test."""
    with tempfile.TemporaryDirectory(prefix="devcluster-") as path:
        Path(path).chmod(0o711)
        yield Path(path) / "c"
        lifecycle.down(Path(path) / "c")


@pytest.fixture(scope="session")
def shared() -> Iterator[DevCluster]:
    """Two slices of two nodes and a CPU node; a requeued task waits for 5 s."""
    with tempfile.TemporaryDirectory(prefix="devcluster-") as path:
        Path(path).chmod(0o711)
        options = Options(
            Path(path) / "c", slices=2, cred_expire_s=5, kill_wait_s=2, namespaces=True
        )
        with DevCluster(options) as cluster:
            yield cluster


@pytest.fixture
def jobs(shared: DevCluster, user: str) -> Iterator[Jobs]:
    """Jobs of the ordinary user."""
    with tempfile.TemporaryDirectory(prefix="devcluster-jobs-") as path:
        account = pwd.getpwnam(user)
        os.chown(path, account.pw_uid, account.pw_gid)
        submitted = Jobs(shared, Path(path), user)
        yield submitted
        _restore(shared)
        submitted.end()
        shared.wait_for_states(
            lambda states: bool(states) and set(states.values()) <= {"idle", "idle~"},
            timeout_s=PATIENCE_S,
        )


def _restore(cluster: DevCluster) -> None:
    """Ends what a test that failed has done to nodes: Slurm waits for those that are away."""
    for node in cluster.nodes:
        if not cluster.processes(node.name):
            cluster.power_on(node.name)
        cluster.heal(node.name)
