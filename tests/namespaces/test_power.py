# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Nodes that an ordinary user powers down by an administrator's rule for sudo, or keeps off.

The rules are those of a mount namespace, in which a directory of the test stands in the place of
/etc/sudoers.d. This machine's own files are never touched.
"""

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from slurm.devcluster.cluster import DevCluster, as_user
from tests.slurm.devcluster.jobs import Jobs, until

ROOT = Path(__file__).resolve().parents[2]
SCONTROL = "/usr/bin/scontrol"
# As docs/slurm.md has it, for the nodes of these clusters.
RULE = f"{SCONTROL} ^update nodename=tpu-[0-9]+-[0-9]+ state=power_down_(asap|force)$"
# Any name of a node.
WIDE_RULE = f"{SCONTROL} ^update nodename=[A-Za-z0-9_-]+ state=power_down(_force|_asap)?$"

# Makes a scheduler, calls it as argv says, and prints what it returns, a JSON value a line.
CALLER = """
import json, logging, sys
from pathlib import Path
from pathways_slurm.scheduler.slurm import SlurmScheduler
from pathways_slurm.scheduler.slurm_options import SlurmOptions
logging.basicConfig(level=logging.INFO, format="%(message)s %(fields)s")
scheduler = SlurmScheduler(Path(sys.argv[1]), SlurmOptions(partition="tpu"))
for verb, *arguments in json.loads(sys.argv[2]):
    print(json.dumps(getattr(scheduler, verb)(*arguments)), flush=True)
"""
TASK = ("--partition=tpu", "--nodes=2", "--array=0", "--job-name=pathways-test")
SLEEP = "srun --nodes=2 --ntasks-per-node=1 sleep 600"


class Site:
    """What an administrator has set up for one user, and that user's programs."""

    def __init__(self, cluster: DevCluster, user: str, copy: Path, directory: Path) -> None:
        """``copy`` is the user's copy of the checkout; ``directory`` is root's own."""
        self.cluster = cluster
        self._user = user
        self._copy = copy
        self._directory = directory
        (directory / "sudoers.d").mkdir(mode=0o755)
        # sudo passes no SLURM_CONF on. Where scontrol needs one, an administrator says which.
        (directory / "scontrol.env").write_text(f"SLURM_CONF={cluster.conf}\n")

    def allow(self, *commands: str) -> None:
        """Has sudo allow the user these commands, as root and without a password."""
        lines = [f"Defaults!{SCONTROL} env_file={self._directory / 'scontrol.env'}"]
        lines += [f"{self._user} ALL=(root) NOPASSWD: {command}" for command in commands]
        path = self._directory / "sudoers.d" / "test"
        path.write_text("\n".join(lines) + "\n")
        path.chmod(0o440)
        self.cluster.run("visudo", "--check", "--strict", f"--file={path}")

    def run(self, *argv: str | Path) -> subprocess.CompletedProcess[str]:
        """Runs a command as the user."""
        mount = 'mount --bind "$1" /etc/sudoers.d; shift; exec "$@"'
        inside: list[str | Path] = ["unshare", "--mount", "bash", "-ec", mount, "bash"]
        inside.append(self._directory / "sudoers.d")
        return self.cluster.run(*inside, *as_user(self._user, *argv), check=False)

    def call(self, *calls: Sequence[object]) -> tuple[list[Any], str]:
        """What one scheduler object of the user's returns, and what it logs meanwhile."""
        python = self._copy / ".venv/bin/python"
        notes = "/nonexistent/no-submission-is-made"
        done = self.run(python, "-P", "-c", CALLER, notes, json.dumps(calls))
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()], done.stderr

    def may(self, *arguments: str) -> bool:
        """Whether the user's scontrol with these arguments would run as root."""
        return self.run("sudo", "-n", "-l", SCONTROL, *arguments).returncode == 0


@pytest.fixture
def site(shared: DevCluster, user: str, copy: Path) -> Iterator[Site]:
    with tempfile.TemporaryDirectory(prefix="devcluster-sudo-") as path:
        Path(path).chmod(0o711)
        yield Site(shared, user, copy, Path(path))


def test_by_sudo_a_slices_nodes_are_powered_down_and_a_job_brings_them_back(
    site: Site, jobs: Jobs
) -> None:
    site.allow(RULE)
    nodes = ["tpu-1-0", "tpu-1-1"]
    results, log = site.call(["power_down", nodes], ["power", nodes], ["power_down", nodes])
    assert results[::2] == [True, True]
    assert set(dict(results[1]).values()) <= {"GOING_DOWN", "OFF"}
    assert log.count("nodes are powered down through sudo") == 1
    states = site.cluster.wait_for_states(
        lambda states: {states.get(node) for node in nodes} == {"idle~"}, 30.0
    )
    assert set(states.values()) == {"idle", "idle~"}
    assert not any(site.cluster.processes(node) for node in nodes)
    assert site.call(["power", nodes])[0] == [dict.fromkeys(nodes, "OFF")]
    jobs.submit(SLEEP, "--partition=tpu", "--nodes=2", "--nodelist=tpu-1-[0-1]")
    until(lambda: site.call(["power", nodes])[0] == [dict.fromkeys(nodes, "ON")], "they are back")
    assert set(nodes) <= site.cluster.pids.keys()


def test_what_is_left_of_a_run_on_a_node_that_hangs_is_ended_by_force(
    site: Site, jobs: Jobs
) -> None:
    """slurmd is stopped, so that Slurm waits for the end of the job, for minutes on real ones."""
    site.allow(RULE)
    job = jobs.submit(SLEEP, *TASK, "--nodelist=tpu-0-[0-1]")
    jobs.running(job)
    hangs = "tpu-0-1"
    os.kill(site.cluster.pids[hangs], signal.SIGSTOP)
    site.cluster.run("scancel", f"{job}_0")
    jobs.wait(job, "is ending", lambda row: row.state == "COMPLETING")
    results, log = site.call(["power_down", [hangs]], ["power_down", [hangs]])
    assert results == [True, True], log
    site.cluster.wait_for_states(lambda states: states.get(hangs) == "idle~", 30.0)
    site.cluster.run("scontrol", "update", f"nodename={hangs}", "state=power_up")
    site.cluster.wait_for_states(lambda states: states.get(hangs) == "idle", 30.0)


def test_a_node_with_a_job_is_left_alone(site: Site, jobs: Jobs) -> None:
    site.allow(RULE)
    job = jobs.submit(SLEEP, "--partition=tpu", "--nodes=2", "--nodelist=tpu-0-[0-1]")
    jobs.running(job)
    results, log = site.call(["power_down", ["tpu-0-0", "tpu-0-1"]])
    assert results == [False]
    assert "a job runs on it" in log
    assert jobs.rows(job)[0].restarts == 0
    assert set(site.cluster.node_states().values()) <= {"allocated", "idle"}


def test_without_a_rule_that_is_said_once_and_nothing_happens(site: Site) -> None:
    before = site.cluster.node_states()
    results, log = site.call(*[["power_down", ["tpu-1-0", "tpu-1-1"]]] * 3)
    assert results == [False] * 3
    assert log.count("nodes are not powered down") == 1
    assert "Slurm says 'slurm_update error: Invalid user id', and sudo does not allow" in log
    assert site.cluster.node_states() == before


def test_the_rule_is_for_one_node_and_one_thing(site: Site) -> None:
    site.allow(RULE)
    assert site.may("update", "nodename=tpu-0-0", "state=power_down_force")
    assert site.may("update", "nodename=tpu-0-0", "state=power_down_asap")
    for rest in (
        ["nodename=ALL", "state=power_down_force"],
        ["nodename=cpu0", "state=power_down_force"],
        ["nodename=tpu-0-0,tpu-0-1", "state=power_down_force"],
        ["nodename=tpu-0-[0-1]", "state=power_down_force"],
        ["nodename=tpu-0-0 state=drain", "state=power_down_force"],
        ["nodename=tpu-0-0", "state=drain", "reason=x", "state=power_down_force"],
        ["nodename=tpu-0-0", "state=power_down_force", "state=drain"],
        ["nodename=tpu-0-0", "state=drain"],
        ["jobid=1", "state=power_down_force"],
    ):
        assert not site.may("update", *rest), rest
    assert not site.may("shutdown")


def test_names_that_a_wide_rule_admits_are_refused_before_it(site: Site) -> None:
    site.allow(WIDE_RULE)
    assert site.may("update", "nodename=ALL", "state=power_down_force")
    before = site.cluster.node_states()
    results, _ = site.call(["power_down", ["ALL"]], ["power_down", ["tpu-0-[0-1]"]])
    assert results == [False, False]
    assert site.cluster.node_states() == before


def test_the_owner_of_a_task_keeps_it_off_nodes_and_lets_it_on_them_again(
    site: Site, jobs: Jobs
) -> None:
    """Without any rights in Slurm but those over its own jobs."""
    job = jobs.submit(SLEEP, *TASK, "--begin=now+1hour")
    task, nodes = f"{job}_0", ["tpu-0-0", "tpu-0-1"]

    def excluded() -> str:
        said = site.cluster.run("scontrol", "--oneliner", "show", "job", task).stdout
        return said.partition("ExcNodeList=")[2].split()[0]

    assert site.call(["avoid", task, nodes], ["avoid", task, nodes])[0] == [True, True]
    assert excluded() == "tpu-0-0,tpu-0-1"
    # Both slices' nodes would leave it none.
    everything = [*nodes, "tpu-1-0"]
    results, log = site.call(["avoid", task, everything])
    assert results == [False]
    assert "only 0 slices of 2 hosts would find nodes" in log
    assert excluded() == "tpu-0-0,tpu-0-1"
    site.cluster.run("scontrol", "update", f"jobid={task}", "StartTime=now")
    assert [row.nodes for row in jobs.running(job)] == ["tpu-1-[0-1]"]
    site.cluster.run("scontrol", "requeuehold", task)
    jobs.wait(job, "is requeued", lambda row: row.state == "PENDING")
    assert excluded() == "tpu-0-0,tpu-0-1"
    assert site.call(["avoid", task, []])[0] == [True]
    assert excluded() == "(null)"
