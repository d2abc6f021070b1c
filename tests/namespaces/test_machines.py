# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Each node is a machine of its own: to its jobs, to the network, and when its power fails."""

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from slurm.devcluster import links
from slurm.devcluster.cluster import DevCluster, as_user
from slurm.devcluster.machines import MachineError
from tests.slurm.devcluster.jobs import PATIENCE_S, Jobs, until

PORT = 29001
# Answers each connection with its host's name.
SERVER = f"""
import socket
with socket.create_server(("0.0.0.0", {PORT})) as server:
    print("listens", flush=True)
    while True:
        connection, _ = server.accept()
        connection.sendall(socket.gethostname().encode())
        connection.close()
"""
CLIENT = f"""
import socket, sys
with socket.create_connection((sys.argv[1], {PORT}), 1) as connection:
    print(connection.recv(100).decode())
"""
SLEEP = "srun --nodes=2 --ntasks-per-node=1 sleep 600"
# Outlives its parent and its session, and has no mark of the cluster.
ESCAPE = ("bash", "-c", "setsid env -i sleep 600 </dev/null >/dev/null 2>&1 &")


@contextlib.contextmanager
def served(cluster: DevCluster, *nodes: str) -> Iterator[None]:
    """A server on each node while the context lasts."""
    with contextlib.ExitStack() as stack:
        for node in nodes:
            process = stack.enter_context(
                subprocess.Popen(
                    cluster.command_on(node, sys.executable, "-c", SERVER),
                    stdout=subprocess.PIPE,
                )
            )
            # It is a child of nsenter's, which must not end alone.
            stack.callback(_end_server, cluster, node)
            assert process.stdout is not None
            assert process.stdout.readline() == b"listens\n"
        yield


def _end_server(cluster: DevCluster, node: str) -> None:
    for one in cluster.processes(node):
        if SERVER in one.process.cmdline():
            one.process.kill()


def ask(cluster: DevCluster, node: str, other: str) -> str:
    """What one node hears from the server of another; "" if there is no way."""
    address = cluster.node(other).address
    return cluster.run(
        *cluster.command_on(node, sys.executable, "-c", CLIENT, address), check=False
    ).stdout.strip()


def test_a_job_of_an_ordinary_user_sees_its_node_and_nothing_else(jobs: Jobs, user: str) -> None:
    cluster = jobs.cluster
    says = 'echo "$(id -un) $(hostname) $(hostname -I) $(cat /proc/[0-9]*/comm | sort -u | xargs)"'
    job = jobs.submit(
        f"srun --nodes=2 --ntasks-per-node=1 --label bash -c '{says}'; sleep 600",
        *("--partition=tpu", "--nodes=2", "--array=0-1"),
    )
    rows = jobs.running(job)
    assert {row.nodes for row in rows} == {"tpu-0-[0-1]", "tpu-1-[0-1]"}
    until(lambda: len(jobs.log().splitlines()) == 4, "every node has spoken")
    heard = {}
    for line in jobs.log().splitlines():
        _, name, node, address, *programs = line.split()
        assert name == user
        heard[node] = address
        assert {"sleep", "slurmd"} <= set(programs)
        assert "slurmctld" not in programs
    names = ("tpu-0-0", "tpu-0-1", "tpu-1-0", "tpu-1-1")
    assert heard == {name: cluster.node(name).address for name in names}


def test_root_can_not_submit_a_job(shared: DevCluster) -> None:
    done = shared.run("sbatch", "--wrap=true", check=False)
    assert done.returncode != 0
    assert "Invalid user id" in done.stderr


def test_an_ordinary_user_reads_what_it_needs_and_no_more(shared: DevCluster, user: str) -> None:
    files = [path for path in shared.directory.rglob("*") if path.is_file()]
    assert shared.directory / "munge/key" in files
    assert shared.directory / "controller/slurmctld.log" in files
    look = 'for file; do [[ ! -r ${file} ]] || echo "${file}"; done'
    done = shared.run(*as_user(user, "bash", "-c", look, "bash", *files))
    readable = {str(Path(line).relative_to(shared.directory)) for line in done.stdout.splitlines()}
    # And what munged and slurmd leave so, of which nothing is secret.
    daemons = {name for name in readable if name.endswith("pid") or "/spool/" in name}
    assert readable - daemons == {
        *("slurm.conf", "gres.conf", "topology.conf", "task_prolog", "env.sh", "hosts")
    }
    assert {name.rpartition("/")[2] for name in daemons} <= {
        *("pid", "slurmd.pid", "hwloc_topo_whole.xml")
    }


def test_all_nodes_serve_the_same_port_until_one_is_cut_off(shared: DevCluster) -> None:
    nodes = [node.name for node in shared.nodes]
    with served(shared, *nodes):
        for node in nodes:
            with socket.create_connection((shared.node(node).address, PORT), 5) as connection:
                assert connection.recv(100).decode() == node
        assert ask(shared, "cpu0", "tpu-0-0") == "tpu-0-0"
        shared.partition("tpu-0-0")
        assert ask(shared, "cpu0", "tpu-0-0") == ""
        assert ask(shared, "tpu-0-0", "tpu-0-1") == ""
        assert ask(shared, "cpu0", "tpu-0-1") == "tpu-0-1"
        shared.heal("tpu-0-0")
        until(lambda: ask(shared, "cpu0", "tpu-0-0"), "the node is reached again")


def test_slurm_takes_nodes_that_fail_for_down_until_they_are_back(jobs: Jobs) -> None:
    cluster = jobs.cluster
    job = jobs.submit(SLEEP, "--partition=tpu", "--nodes=2", "--array=0-1")
    jobs.running(job)
    # Both at once, because Slurm takes its time.
    unpowered, cut_off = "tpu-0-1", "tpu-1-1"
    until(lambda: _sleeps(cluster, unpowered) == _sleeps(cluster, cut_off) == 1, "the jobs run")
    cluster.run(*cluster.command_on(unpowered, *ESCAPE))
    until(lambda: _sleeps(cluster, unpowered) == 2, "another process runs")
    cluster.power_off(unpowered)
    cluster.partition(cut_off)
    assert cluster.processes(unpowered) == []
    with pytest.raises(MachineError, match=f"off: {unpowered}"):
        cluster.command_on(unpowered, "true")
    assert _sleeps(cluster, cut_off) == 1
    cluster.wait_for_states(
        lambda states: states.get(unpowered) == states.get(cut_off) == "down*", PATIENCE_S
    )
    jobs.wait(job, "is requeued", lambda row: row.restarts == 1)
    assert {"tpu-0-0", "tpu-1-0"} <= cluster.pids.keys()
    # Slurm may kill a run of a job on a node that still has one of its former runs.
    cluster.run("scancel", job)
    cluster.power_on(unpowered)
    cluster.heal(cut_off)
    # Else it may take a minute until Slurm looks whether a node that was down answers again.
    cluster.run("scontrol", "reconfigure")
    cluster.wait_for_states(lambda states: set(states.values()) == {"idle"}, PATIENCE_S)
    rows = jobs.running(jobs.submit(SLEEP, "--partition=tpu", "--nodes=2", "--array=0-1"))
    assert {row.nodes for row in rows} == {"tpu-0-[0-1]", "tpu-1-[0-1]"}


def _sleeps(cluster: DevCluster, node: str) -> int:
    processes = [one for one in cluster.processes(node) if one.daemon is None]
    return sum(one.process.name() == "sleep" for one in processes)


def test_slurm_switches_a_node_off_and_on(shared: DevCluster) -> None:
    node = "tpu-1-1"
    shared.run("scontrol", "update", f"nodename={node}", "state=power_down_force")
    shared.wait_for_states(lambda states: states.get(node) == "idle~", 60.0)
    assert shared.processes(node) == []
    shared.run("scontrol", "update", f"nodename={node}", "state=power_up")
    shared.wait_for_states(lambda states: states.get(node) == "idle", 60.0)
    assert node in shared.pids
    assert len(links.existing(shared.directory)) == 1 + len(shared.nodes)


def test_jobs_outlive_their_slurmd(jobs: Jobs) -> None:
    cluster = jobs.cluster
    jobs.running(jobs.submit(SLEEP, "--partition=tpu", "--nodes=2", "--nodelist=tpu-1-[0-1]"))
    node = "tpu-1-0"
    until(lambda: _sleeps(cluster, node) == 1, "the job's process runs")
    cluster.kill_slurmd(node)
    assert node not in cluster.pids
    assert _sleeps(cluster, node) == 1
    cluster.start_slurmd(node)
    assert node in cluster.pids
