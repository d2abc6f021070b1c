# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""SIGTERM and notices really reach a program, whoever sends them and whatever is in between."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from slurm.devcluster.cluster import DevCluster
from slurm.devcluster.options import Options
from tests.e2e.service import CHECKOUT, COMMAND, wait_until
from tests.slurm.service.service import SlurmService

from pathways_elastic.autocheckpoint import EXIT_SAVED

TRAINING = CHECKOUT / "tests" / "autocheckpoint" / "program.py"
RUN_JAX = CHECKOUT / "scripts" / "run_jax.sh"
# Until SIGTERM of the batch script, and from then to SIGKILL.
GRACE_S = 5
KILL_WAIT_S = 120
PATIENCE_S = 240.0


@pytest.fixture
def service(tmp_path: Path) -> Iterator[SlurmService]:
    """A service of one slice on one node; another node is the workloads'."""
    with tempfile.TemporaryDirectory(prefix="devcluster-") as path:
        options = Options(
            Path(path) / "c",
            slices=2,
            hosts_per_slice=1,
            cpu_nodes=2,
            grace_time_s=GRACE_S,
            kill_wait_s=KILL_WAIT_S,
            cred_expire_s=5,
        )
        with DevCluster(options) as cluster:
            running = SlurmService(
                tmp_path / "home",
                cluster,
                SLICE_SHAPE="2x2",
                MAX_SLICES="1",
                PATHWAYS_ON_NOTICE="forward",
                # Four programs start at once, so everything is slow to answer.
                PATHWAYS_LEASE_S="60",
                PATHWAYS_HEARTBEAT_TIMEOUT_S="30",
            )
            yield running
            running.close()


class Workload:
    """A training program on the service; what it says is in a file.

    Args:
        service: That it uses.
        name: Of a directory for its files.
    """

    def __init__(self, service: SlurmService, name: str) -> None:
        self._service = service
        self.directory = service.home.parent / name
        self.directory.mkdir()
        self.log = self.directory / "log"
        self.steps = self.directory / "steps"
        self.training = (str(TRAINING), str(self.steps), "--policy")
        self.environ = {
            **service.environ,
            "PATHWAYS_CLUSTER_ENV": str(service.cluster_env),
            "TF_CPP_MIN_LOG_LEVEL": "2",
            "ENABLE_AUTOCHECKPOINT": "true",
            "EXIT_AFTER_AUTOCHECKPOINT": "true",
        }

    def start(self, *argv: str | Path) -> subprocess.Popen[bytes]:
        """Runs a command on this machine."""
        with self.log.open("a") as log:
            return subprocess.Popen(
                argv,
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def submit(self, *argv: str | Path) -> str:
        """Runs sbatch; the job's id."""
        done = subprocess.run(
            ["sbatch", "--parsable", "--open-mode=append", f"--output={self.log}", *argv],
            env=self.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        self._service.jobs.append(job := done.stdout.strip())
        return job

    @property
    def said(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def wait_to_say(self, words: str) -> None:
        wait_until(
            lambda: words in self.said,
            PATIENCE_S,
            lambda: f"{words!r} in {self.log}: {self.said[-3000:]}",
        )

    def expect_saved(self) -> int:
        """Its one checkpoint is of the last step that it took; returns that."""
        (saved,) = (int(path.name) for path in self.steps.iterdir() if path.name.isdigit())
        assert self.taken() == list(range(1, saved + 1)), self.said[-3000:]
        assert f"step {saved} is committed" in self.said
        return saved

    def taken(self) -> list[int]:
        """The steps that it has taken, in order, over all its runs."""
        lines = self.said.splitlines()
        return [int(line.split()[1]) for line in lines if line.startswith("step ")]


@pytest.mark.timeout(900)
def test_programs_are_saved_at_scancel_preemption_and_maintenance(service: SlurmService) -> None:
    cluster = service.cluster
    service.sbatch("--partition=cpu")
    # They wait for the service.
    stepped, preempted, cancelled, local = (
        Workload(service, name) for name in ("stepped", "preempted", "cancelled", "local")
    )
    low = ("--partition=tpu-low", "--nodelist=tpu-1-0")
    pushed = preempted.submit(*low, RUN_JAX, "--", "python", *preempted.training)
    batch = cancelled.submit("--partition=cpu", RUN_JAX, "--", "python", *cancelled.training)
    srun = stepped.start(
        *("srun", "--partition=cpu", "--ntasks=1", "--job-name=stepped"),
        *(COMMAND, "run", "--", sys.executable, *stepped.training),
    )
    run = local.start(COMMAND, "run", "--", sys.executable, *local.training)
    for workload in (preempted, cancelled, stepped, local):
        workload.wait_to_say("step 3\n")
    # In a job, it is said that five minutes are more than this Slurm leaves: to a batch script, as
    # the two become programs, and to a step.
    for workload in (preempted, cancelled):
        assert f"{KILL_WAIT_S} s after the signal (KillWait), also when it is" in workload.said
    assert f"and have {GRACE_S + KILL_WAIT_S} s (with GraceTime of partition" in preempted.said
    assert f"{KILL_WAIT_S} s when it is preempted" in stepped.said
    assert "in no step" not in stepped.said
    assert "KillWait" not in local.said

    # A job with a better right to the node.
    better = cluster.run(
        *("sbatch", "--parsable", "--partition=tpu", "--nodelist=tpu-1-0", "--output=/dev/null"),
        "--wrap=sleep 600",
    ).stdout.strip()
    service.jobs.append(better)
    cluster.run("scancel", batch)
    cluster.run("scancel", "--signal=TERM", "--name=stepped")
    assert srun.wait(PATIENCE_S) == EXIT_SAVED, stepped.said[-3000:]
    stepped.expect_saved()
    _wait_for_state(service, batch, "CANCELLED")
    cancelled.expect_saved()
    _wait_for_state(service, better, "RUNNING")
    saved = preempted.expect_saved()
    cluster.run("scancel", better)
    # Requeued, it goes on from the step at which it was pushed off the node.
    preempted.wait_to_say(f"restored {saved} {saved}\n")
    preempted.wait_to_say(f"step {saved + 3}\n")
    assert preempted.taken()[saved:][:3] == [saved + 1, saved + 2, saved + 3]
    cluster.run("scancel", pushed)
    _wait_for_state(service, pushed, "CANCELLED")

    # The slice's nodes are given back as soon as the program has saved its state and ended.
    done = service.run("maintenance", "0", "--wait", "10m", timeout_s=PATIENCE_S)
    assert done.returncode == 0, done.stdout + done.stderr + service.logs() + local.said
    assert run.wait(PATIENCE_S) == EXIT_SAVED, local.said[-3000:]
    local.expect_saved()


def _wait_for_state(service: SlurmService, job: str, state: str) -> None:
    wait_until(
        lambda: service.job_state(job) == state,
        PATIENCE_S,
        lambda: f"job {job} is {state}: {service.queue()}",
        0.2,
    )
