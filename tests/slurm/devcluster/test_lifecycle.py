# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Clusters come up and are gone, whatever happened in between."""

import signal
import subprocess
import time
from pathlib import Path

import pytest
from slurm.devcluster import lifecycle, members
from slurm.devcluster.cluster import DevCluster
from slurm.devcluster.directory import Directory
from slurm.devcluster.options import Options, OptionsError
from tests.slurm.devcluster.jobs import Jobs, until
from tests.slurm.devcluster.scripts import MOST_S, Scripts

SCRIPTS = Scripts()
# Processes that ignore SIGTERM, and one that has left its session and its parent.
STUBBORN = (
    "srun --nodes=2 --ntasks-per-node=1 bash -c 'trap : TERM; (setsid sleep 600 &); sleep 600'"
)


def assert_gone(directory: Path) -> None:
    assert members.find(directory) == []
    assert not directory.exists()


def test_up_is_quick_idle_and_private_and_down_leaves_nothing(directory: Path) -> None:
    started = time.monotonic()
    said = SCRIPTS.call("up.sh", directory)
    assert time.monotonic() - started < 10
    assert f". {directory}/env.sh" in said
    states = subprocess.run(
        ["bash", "-c", f". {directory}/env.sh; sinfo -h -N -o '%N %T' | sort -u"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout.split()
    names = ["cpu0", *(f"tpu-{index}-{host}" for index in range(3) for host in range(2))]
    assert states == [word for name in names for word in (name, "idle")]
    assert directory.stat().st_mode & 0o777 == 0o700
    assert (directory / "env.sh").stat().st_mode & 0o777 == 0o600
    assert (directory / "munge/key").stat().st_mode & 0o777 == 0o400
    assert f"nothing of the cluster in {directory} is left" in SCRIPTS.call("down.sh", directory)
    assert_gone(directory)


def test_up_twice_and_down_twice(directory: Path) -> None:
    SCRIPTS.call("up.sh", directory, "--slices", "1")
    pids = {one.process for one in members.find(directory)}
    assert "is up already" in SCRIPTS.call("up.sh", directory, "--slices", "1")
    said = SCRIPTS.call("up.sh", directory, "--slices", "2", "--cred-expire", "9", code=2)
    assert "slices is 1, asked for is 2; cred_expire_s is 120, asked for is 9" in said
    assert {one.process for one in members.find(directory)} == pids
    SCRIPTS.call("down.sh", directory)
    assert f"no cluster in {directory}" in SCRIPTS.call("down.sh", directory)
    assert_gone(directory)


def test_two_clusters_side_by_side(directory: Path, shared: DevCluster) -> None:
    with DevCluster(Options(directory, slices=1)) as other:
        assert other.layout.network != shared.layout.network
        assert set(other.node_states()) == {"cpu0", "tpu-0-0", "tpu-0-1"}
        assert len(shared.node_states()) == 5
    assert_gone(directory)
    assert len(shared.pids) == 7


@pytest.mark.parametrize("victim", ["slurmctld", "munged", "everything but jobs"])
def test_down_after_kill_9_ends_jobs_too(directory: Path, tmp_path: Path, victim: str) -> None:
    with DevCluster(Options(directory, slices=1)) as cluster:
        jobs = Jobs(cluster, tmp_path)
        jobs.running(jobs.submit(STUBBORN, "--partition=tpu", "--nodes=2"))
        until(lambda: _sleeps(cluster) == 4, "the job's processes run")
        for one in cluster.processes():
            if one.daemon == victim or (one.daemon and victim == "everything but jobs"):
                one.process.kill()
        SCRIPTS.call("down.sh", directory)
        assert_gone(directory)


def _sleeps(cluster: DevCluster) -> int:
    return [one.process.name() for one in cluster.processes()].count("sleep")


def test_down_when_the_directory_is_gone(directory: Path) -> None:
    with DevCluster(Options(directory, slices=1)):
        with Directory(directory).locked(1.0):
            Directory(directory).remove()
        assert members.find(directory)
        SCRIPTS.call("down.sh", directory)
        assert_gone(directory)


def test_up_after_slurmctld_was_killed_starts_anew(directory: Path) -> None:
    with DevCluster(Options(directory, slices=1)) as cluster:
        before = {one.process for one in cluster.processes()}
        cluster.kill_slurmctld()
        assert "Ending what is left" in SCRIPTS.call("up.sh", directory, "--slices", "1")
        assert not before & {one.process for one in cluster.processes()}
        assert set(cluster.node_states().values()) == {"idle"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_up_that_is_told_to_end_leaves_nothing(directory: Path, number: signal.Signals) -> None:
    # So many nodes that it takes a moment.
    process = SCRIPTS.start("up.sh", directory, "--slices", "30")
    until(lambda: len(members.find(directory)) > 5, "daemons are being started")
    process.send_signal(number)
    said, _ = process.communicate(timeout=MOST_S)
    assert process.returncode == 128 + number, said
    assert_gone(directory)


def test_an_up_that_was_killed_is_cleared_by_the_next(directory: Path) -> None:
    process = SCRIPTS.start("up.sh", directory, "--slices", "30")
    until(lambda: len(members.find(directory)) > 5, "daemons are being started")
    process.kill()
    process.communicate()
    with DevCluster(Options(directory, slices=1)) as cluster:
        assert set(cluster.pids) == {"munged", "slurmctld", "cpu0", "tpu-0-0", "tpu-0-1"}


def test_logs_are_kept_if_asked_to_and_nothing_else(directory: Path) -> None:
    SCRIPTS.call("up.sh", directory, "--slices", "1")
    SCRIPTS.call("down.sh", directory, "--keep-logs")
    assert members.find(directory) == []
    files = {path.name for path in directory.rglob("*") if path.is_file()}
    assert files == {".devcluster", "munged.log", "slurmctld.log", "slurmd.log", "start.log"}
    with DevCluster(Options(directory, slices=1)):
        pass
    assert_gone(directory)


def test_wrong_options_are_told_in_one_go_and_nothing_is_started(directory: Path) -> None:
    said = SCRIPTS.call("up.sh", directory, "--slices", "0", "--tpu-type", "v1", code=2)
    assert "--slices 0 is out of range" in said
    assert "--tpu-type 'v1' is unknown" in said
    assert_gone(directory)


def test_a_network_in_use_is_refused(directory: Path, shared: DevCluster) -> None:
    with pytest.raises(OptionsError, match="can't be used: binding"):
        lifecycle.up(Options(directory, network=shared.layout.network), print)
    assert_gone(directory)
