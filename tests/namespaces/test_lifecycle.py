# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Clusters of namespaces come up and are gone with all that they are made of."""

import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from slurm.devcluster import links, members
from slurm.devcluster.cluster import DevCluster, as_user
from slurm.devcluster.directory import Directory
from slurm.devcluster.options import Options, OptionsError
from tests.namespaces.conftest import ROOT
from tests.slurm.devcluster.jobs import until
from tests.slurm.devcluster.scripts import MOST_S, Scripts

SCRIPTS = Scripts("--namespaces")


def assert_gone(directory: Path) -> None:
    assert members.find(directory) == []
    assert links.existing(directory) == []
    assert str(directory) not in Path("/proc/self/mounts").read_text()
    assert not directory.exists()


def namespaces_of(process: psutil.Process) -> set[str]:
    """The namespaces that the process is in; none once it has ended."""
    try:
        links_to = Path(f"/proc/{process.pid}/ns")
        return {str((links_to / kind).readlink()) for kind in ("net", "uts", "mnt", "pid")}
    except OSError:
        return set()


def test_up_is_quick_and_down_leaves_nothing(directory: Path) -> None:
    started = time.monotonic()
    said = SCRIPTS.call("up.sh", directory, "--slices", "2")
    assert time.monotonic() - started < 15
    assert f"down.sh --dir {directory} --namespaces" in said
    found = set[str]().union(*(namespaces_of(one.process) for one in members.find(directory)))
    made = found - namespaces_of(psutil.Process())
    assert len(made) == 5 * 4 + 2  # slurmctld has a host name, for which it needs a mount
    # By what they are in, not by their marks. Namespaces end with the last process in them.
    inside = [one for one in psutil.process_iter() if namespaces_of(one) & made]
    assert len(inside) > 5 * 2
    assert len(links.existing(directory)) == 1 + 5
    assert "is up already" in SCRIPTS.call("up.sh", directory, "--slices", "2")
    SCRIPTS.call("down.sh", directory)
    assert_gone(directory)
    assert not any(lives(one) for one in inside)


def lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_two_clusters_side_by_side(directory: Path, shared: DevCluster) -> None:
    with DevCluster(Options(directory, slices=1, namespaces=True)) as other:
        assert other.layout.network != shared.layout.network
        assert set(other.node_states()) == {"cpu0", "tpu-0-0", "tpu-0-1"}
        assert len(shared.node_states()) == 5
    assert_gone(directory)
    assert len(links.existing(shared.directory)) == 6
    assert len(shared.pids) == 7


def test_a_network_in_use_is_refused(directory: Path, shared: DevCluster) -> None:
    network = shared.layout.network
    with (
        pytest.raises(OptionsError, match=f"--network {network} is in use"),
        DevCluster(Options(directory, network=network, namespaces=True)),
    ):
        pass
    assert_gone(directory)


def test_down_after_kill_9_of_all_daemons(directory: Path, user: str) -> None:
    with DevCluster(Options(directory, slices=1, namespaces=True)) as cluster:
        sleep = cluster.command_on("tpu-0-0", *as_user(user, "setsid", "env", "-i", "sleep", "600"))
        started = subprocess.Popen(sleep, stdin=subprocess.DEVNULL)
        until(lambda: _others(cluster), "the user's process runs")
        for one in cluster.processes():
            if one.daemon not in (None, members.INIT):
                one.process.kill()
        SCRIPTS.call("down.sh", directory)
        assert started.wait(MOST_S) != 0
        assert_gone(directory)


def _others(cluster: DevCluster) -> bool:
    return any(one.process.uids().real != 0 for one in cluster.processes("tpu-0-0"))


def test_down_when_the_directory_is_gone(directory: Path) -> None:
    with DevCluster(Options(directory, slices=1, namespaces=True)):
        with Directory(directory).locked(1.0):
            Directory(directory).remove()
        assert members.find(directory)
        SCRIPTS.call("down.sh", directory)
        assert_gone(directory)


def test_an_up_that_was_killed_leaves_what_down_removes(directory: Path) -> None:
    # So many nodes that it takes a moment.
    process = SCRIPTS.start("up.sh", directory, "--slices", "15")
    until(lambda: len(links.existing(directory)) > 3, "nodes are booting")
    process.kill()
    process.communicate()
    SCRIPTS.call("down.sh", directory)
    assert_gone(directory)


def test_an_up_that_is_told_to_end_leaves_nothing(directory: Path) -> None:
    process = SCRIPTS.start("up.sh", directory, "--slices", "15")
    until(lambda: len(links.existing(directory)) > 3, "nodes are booting")
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=MOST_S)
    assert process.returncode == 128 + signal.SIGTERM, said
    assert_gone(directory)


@pytest.fixture
def private() -> Iterator[Path]:
    """A directory that no other user gets through."""
    with tempfile.TemporaryDirectory(prefix="devcluster-") as path:
        yield Path(path)


def test_a_directory_out_of_the_users_reach_is_refused(private: Path) -> None:
    said = SCRIPTS.call("up.sh", private / "c", code=2)
    assert f"{private} has mode 700; valid: a directory whose parents let others through" in said
    said = SCRIPTS.call("up.sh", private / "a/c", code=2)
    assert f"{private} has mode 700" in said
    private.chmod(0o711)
    said = SCRIPTS.call("up.sh", private / "a/c", code=2)
    assert f"make {private}/a first" in said
    assert list(private.iterdir()) == []


def test_an_ordinary_user_is_told_that_it_takes_root() -> None:
    for script in ("up.sh", "down.sh"):
        done = subprocess.run(
            [ROOT / "scripts/lib/ordinary.sh", f"slurm/devcluster/{script}", "--namespaces"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=MOST_S,
            check=False,
        )
        assert done.returncode == 2
        assert "root" in done.stderr
