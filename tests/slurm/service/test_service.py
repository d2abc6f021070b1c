# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""sbatch start_pathways.sh: it comes up from anywhere, and however it ends, nothing stays."""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from slurm.devcluster.cluster import DevCluster
from tests.e2e.service import CHECKOUT, output_of, wait_until
from tests.slurm.service.service import LIVE, START, SlurmService


def _ready(service: SlurmService) -> str:
    job = service.sbatch()
    service.wait_for("READY", timeout_s=60)
    return job


def _restarts(service: SlurmService) -> dict[str, str]:
    """Of each slice's task, by their ids."""
    return {row["id"]: row["restarts"] for row in service.tasks()}


def _ended(service: SlurmService, job: str) -> str:
    def over() -> str:
        state = service.job_state(job)
        return "" if state in LIVE else state

    return wait_until(over, 60.0, "the job ends", 0.2)


def _last_word(service: SlurmService) -> str:
    about = [e["reason"] for e in service.events() if e["subject"] == "scheduler"]
    return about[-1] if about else ""


@pytest.fixture(scope="class")
def lasting(
    cluster: DevCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SlurmService]:
    """A service that is up, for the tests of one class: on its nodes no other one can be."""
    under_test = SlurmService(tmp_path_factory.mktemp("lasting") / "home", cluster)
    try:
        _ready(under_test)
        yield under_test
        assert under_test.status()["service"] == "READY"
        assert len(under_test.tasks()) == 2
    finally:
        under_test.close()


@pytest.fixture
def whole(lasting: SlurmService) -> SlurmService:
    """The service that lasts, with both slices."""
    for index in range(2):
        lasting.wait_for_slice(index, "READY")
    return lasting


class TestAServiceLasts:
    """Whatever is done to parts of it: one service for all these tests."""

    def test_a_lost_slice_is_requeued_by_slurm(self, whole: SlurmService) -> None:
        restarts = _restarts(whole)
        before = whole.status()["slices"][1]
        os.kill(whole.worker_on(before["hosts"][1]["address"]), signal.SIGKILL)
        after = whole.wait_for_slice(1, "READY", above=before["incarnation"], timeout_s=60)
        assert after["incarnation"] == before["incarnation"] + 1
        task = next(row for row in whole.tasks() if row["id"].endswith("_1"))
        assert task["state"] == "RUNNING"
        assert _restarts(whole) == {**restarts, task["id"]: str(int(restarts[task["id"]]) + 1)}

    def test_a_killed_supervisor_is_started_again_and_adopts_everything(
        self, whole: SlurmService
    ) -> None:
        before, restarts = whole.status(), _restarts(whole)
        os.kill(whole.pid_of("supervise"), signal.SIGKILL)
        wait_until(
            lambda: any(e["reason"] == "SupervisorAdopted" for e in whole.events()), 30.0, "adopted"
        )
        after = whole.wait_for("READY")
        assert after["run_id"] == before["run_id"]
        assert after["rm"]["pid"] == before["rm"]["pid"]
        assert _restarts(whole) == restarts
        assert len(restarts) == 2

    def test_slurmctld_may_stop_or_hang_meanwhile(
        self, whole: SlurmService, cluster: DevCluster
    ) -> None:
        restarts, told = _restarts(whole), len(whole.events())
        cluster.hang_slurmctld()
        said = "SchedulerUnavailable"
        try:
            wait_until(lambda: _last_word(whole) == said, 60.0, said)
            assert whole.status()["service"] == "READY"
        finally:
            cluster.resume_slurmctld()
        wait_until(lambda: _last_word(whole) == "SchedulerAnswersAgain", 60.0, "it answers again")
        cluster.stop_slurmctld()
        try:
            wait_until(lambda: _last_word(whole) == said, 60.0, said)
            assert whole.status()["service"] == "READY"
        finally:
            cluster.start_slurmctld()
        wait_until(lambda: _last_word(whole) == "SchedulerAnswersAgain", 60.0, "it answers again")
        reasons = [event["reason"] for event in whole.events()]
        assert "SliceLost" not in reasons[told:]
        assert reasons.count("ArraySubmitted") == 1
        assert _restarts(whole) == restarts
        assert len(restarts) == 2


def test_scancel_of_the_service_ends_everything(service: SlurmService) -> None:
    job = _ready(service)
    service.cluster.run("scancel", job)
    assert _ended(service, job) == "CANCELLED"
    service.expect_nothing_left()
    assert service.status()["service"] == "STOPPED"


def test_the_time_limit_of_the_service_ends_everything(service: SlurmService) -> None:
    job = _ready(service)
    service.cluster.run("scontrol", "update", f"jobid={job}", "EndTime=now+2")
    assert _ended(service, job) == "TIMEOUT"
    service.expect_nothing_left()


def test_scancel_while_it_is_only_starting_ends_everything(service: SlurmService) -> None:
    job = service.sbatch()
    wait_until((service.home / "state" / "run.json").exists, 30.0, "begun", 0.001)
    service.cluster.run("scancel", job)
    _ended(service, job)
    service.expect_nothing_left()


def test_killing_the_batch_script_ends_everything(service: SlurmService) -> None:
    _ready(service)
    os.kill(service.batch_pid(), signal.SIGKILL)
    service.expect_nothing_left()


def test_killing_batch_script_and_supervisor_ends_everything(service: SlurmService) -> None:
    _ready(service)
    batch, supervisor = service.batch_pid(), service.pid_of("supervise")
    os.kill(batch, signal.SIGKILL)
    os.kill(supervisor, signal.SIGKILL)
    service.expect_nothing_left()


def test_a_supervisor_that_keeps_dying_is_given_up_and_cleaned_up(
    make: Callable[..., SlurmService],
) -> None:
    service = make(PATHWAYS_RESTART_BUDGET="0")
    job = _ready(service)
    os.kill(service.pid_of("supervise"), signal.SIGKILL)
    assert _ended(service, job) == "FAILED"
    assert "more than 0 times" in service.log.read_text()
    service.expect_nothing_left(within_s=5)


def test_a_dead_slurmd_on_the_cpu_node_ends_everything(service: SlurmService) -> None:
    job = _ready(service)
    service.cluster.run("scontrol", "update", f"jobid={job}", "Requeue=0")
    node = next(row["nodes"] for row in service.queue() if row["job"] == job)
    service.cluster.kill_slurmd(node)
    try:
        service.expect_nothing_left(within_s=90)
    finally:
        service.cluster.start_slurmd(node)
        service.cluster.wait_for_states(lambda states: states.get(node) == "idle", timeout_s=60)
    assert "Slurm says that the service's job" in service.events()[-1]["message"]


def test_ctrl_c_of_up_ends_everything(make: Callable[..., SlurmService]) -> None:
    """``up`` is the service too, outside of any job."""
    service = make()
    service.settings["PATHWAYS_SERVICE_ADDRESS"] = f"{service.network}.0.1"
    root = service.start("up")
    service.wait_for("READY", process=root, timeout_s=60)
    os.killpg(root.pid, signal.SIGINT)
    assert root.wait(60) == 0, output_of(root)
    service.expect_nothing_left()


def test_two_services_of_one_user_do_not_meet(make: Callable[..., SlurmService]) -> None:
    first = make("first", MAX_SLICES="1")
    second = make("second", MAX_SLICES="1", PATHWAYS_NAME="second")
    second.settings["PATHWAYS_HOME"] = first.settings["PATHWAYS_HOME"]
    second.settings |= {"PATHWAYS_PROXY_PORT": "29010", "PATHWAYS_RM_PORT": "29011"}
    job = _ready(first)
    second.sbatch()
    wait_until(lambda: second.status()["service"] == "READY", 60.0, f"second: {second.logs()}")
    assert (first.home / "services" / "second" / "cluster.env").exists()
    first.cluster.run("scancel", job)
    wait_until(lambda: first.status()["service"] == "STOPPED", 60.0, "the first ends")
    assert second.status()["service"] == "READY"
    assert second.run("down").returncode == 0
    first.expect_nothing_left()


def test_it_is_found_from_anywhere_and_with_spaces_in_its_path(
    make: Callable[..., SlurmService], tmp_path: Path
) -> None:
    service = make(MAX_SLICES="1")
    odd = tmp_path / "a path with spaces"
    odd.symlink_to(CHECKOUT)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    job = service.sbatch(
        f"--chdir={elsewhere}", script=Path("a path with spaces/scripts") / START.name, cwd=tmp_path
    )
    service.wait_for("READY", timeout_s=60)
    service.cluster.run("scancel", job)
    service.expect_nothing_left()


@pytest.mark.parametrize("how", ["stdin", "wrap"])
def test_what_can_not_be_found_is_said(service: SlurmService, how: str) -> None:
    script = START.read_text()
    argv = ["sbatch", "--parsable", f"--output={service.log}"]
    if how == "wrap":
        copy = service.home.parent / START.name
        shutil.copy(START, copy)
        argv += ["--wrap", f"bash '{copy}'"]
    done = subprocess.run(
        argv,
        env=service.environ,
        input=script if how == "stdin" else "",
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert _ended(service, done.stdout.strip()) == "FAILED"
    assert (
        "submit the file itself: sbatch PATH/scripts/start_pathways.sh" in service.log.read_text()
    )


def test_wrong_settings_are_told_in_one_go_and_end_the_job(service: SlurmService) -> None:
    service.settings |= {"MIN_SLICES": "7", "TPU_TYPE": "v9"}
    job = service.sbatch()
    assert _ended(service, job) == "FAILED"
    text = service.log.read_text()
    assert "MIN_SLICES='7'" in text
    assert "TPU_TYPE='v9'" in text
    assert not service.tasks(live=False)
