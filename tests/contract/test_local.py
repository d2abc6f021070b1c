# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What only the local scheduler promises."""

import itertools
import json
import os
import shutil
import signal
import stat
import time
from dataclasses import replace
from ipaddress import IPv4Network
from pathlib import Path

import pytest
from tests.contract.local_harness import NETWORK, LocalHarness

from pathways_slurm.processes import is_alive
from pathways_slurm.scheduler.base import ArraySpec, Node, SchedulerError, SchedulerUnavailable
from pathways_slurm.scheduler.local import LocalScheduler
from pathways_slurm.states import TaskState

HOST_VARIABLES = {
    "PATHWAYS_SLICE_INDEX",
    "PATHWAYS_HOST_INDEX",
    "PATHWAYS_INCARNATION",
    "PATHWAYS_NODE_NAMES",
    "PATHWAYS_NODE_ADDRESSES",
}


class TestHosts:
    def test_nodes_have_an_address_each(self, local: LocalHarness) -> None:
        scheduler = local.scheduler()
        tasks = local.running(scheduler.submit(local.spec(slices=2, hosts=2)))
        assert tasks[1].nodes == (
            Node("slice-1-host-0", "127.63.2.1"),
            Node("slice-1-host-1", "127.63.2.2"),
        )
        assert scheduler.service_node() == Node("service", "127.63.0.1")
        assert scheduler.power_down(["slice-1-host-0"]) is False

    def test_pids_are_those_of_the_hosts(self, local: LocalHarness) -> None:
        tasks = local.running(local.scheduler().submit(local.spec(slices=2, hosts=2)))
        for task in tasks.values():
            assert task.pids == tuple(report.pid for report in local.live(task.index))

    def test_the_environment_is_exactly_what_was_asked_for(
        self, local: LocalHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("PYTHONPATH", "LD_LIBRARY_PATH", "XLA_FLAGS", "LCX"):
            monkeypatch.setenv(name, "/nowhere")
        for name in ("TMPDIR", "TZ", "LC_ALL", "USER", "LANG"):
            monkeypatch.setenv(name, "C")
        spec = local.spec()
        local.running(local.scheduler().submit(spec))
        (report,) = local.reports()
        kept = {"HOME", "LANG", "PATH", "TMPDIR", "TZ", "USER"} & set(os.environ)
        kept |= {name for name in os.environ if name.startswith("LC_")}
        assert set(report.env) == kept | set(spec.env) | HOST_VARIABLES

    def test_a_host_has_a_session_and_no_input(self, local: LocalHarness) -> None:
        local.running(local.scheduler().submit(local.spec()))
        (report,) = local.reports()
        assert report.is_session_leader
        assert report.stdin == "/dev/null"

    def test_its_log_begins_each_attempt_with_a_line(self, local: LocalHarness) -> None:
        scheduler = local.scheduler()
        array = scheduler.submit(local.spec(first_incarnation=3))
        local.running(array)
        scheduler.requeue(f"{array}_0")
        local.rerun(f"{array}_0", 4)
        lines = (local.log_dir / "slice-0" / "host-0.log").read_text().splitlines()
        headlines = [line for line in lines if line.startswith("===")]
        assert [line.split()[:7] for line in headlines] == [
            f"=== slice 0 host 0 incarnation {number}".split() for number in (3, 4)
        ]

    def test_everything_is_private(self, local: LocalHarness) -> None:
        local.running(local.scheduler().submit(local.spec(hosts=2)))
        for path in itertools.chain(local.arrays.rglob("*"), local.log_dir.rglob("*")):
            mode = stat.S_IMODE(path.stat().st_mode)
            assert mode == (0o700 if path.is_dir() else 0o600), path


class TestEnds:
    def test_say_which_host_and_how(self, local: LocalHarness) -> None:
        array = local.scheduler().submit(local.spec(slices=3, hosts=2))
        local.running(array)
        for index, (host, number) in enumerate(
            [(1, signal.SIGKILL), (0, signal.SIGUSR2), (0, signal.SIGUSR1)]
        ):
            local.signal_host(index, host, number)
        tasks = [local.ended(f"{array}_{index}") for index in range(3)]
        assert [task.state for task in tasks] == [TaskState.FAILED] * 3
        assert [task.reason for task in tasks] == [
            "host 1 ended by signal 9 (SIGKILL)",
            "host 0 exited with code 3",
            "host 0 exited with code 0",
        ]

    def test_take_along_what_a_host_has_forked(self, local: LocalHarness) -> None:
        array = local.scheduler().submit(local.spec(hosts=2, mode="fork"))
        local.running(array)
        children = [pid for report in local.reports() for pid in report.children]
        assert len(children) == 2
        assert all(local.lives(pid) for pid in children)
        local.signal_host(0, 0, signal.SIGKILL)
        local.ended(f"{array}_0")
        assert local.survivors() == []

    def test_a_program_that_can_not_be_executed(self, local: LocalHarness) -> None:
        program = local.directory / "program"
        program.write_text("#!/no/such/interpreter\n")
        program.chmod(0o700)
        array = local.scheduler().submit(replace(local.spec(), argv=(str(program),)))
        task = local.ended(f"{array}_0")
        assert task.state is TaskState.FAILED
        assert str(program) in task.reason
        assert (task.exit_code, task.signal) == (None, None)

    def test_a_log_that_can_not_be_written(self, local: LocalHarness) -> None:
        scheduler = local.scheduler()
        array = scheduler.submit(local.spec(slices=2))
        local.running(array)
        shutil.rmtree(local.log_dir / "slice-0")
        (local.log_dir / "slice-0").write_text("a file where a directory should be")
        (local.log_dir / "slice-1" / "host-0.log").unlink()
        (local.log_dir / "slice-1" / "host-0.log").mkdir()
        for index in range(2):
            scheduler.requeue(f"{array}_{index}")
            task = local.ended(f"{array}_{index}")
            assert (task.state, task.restarts) == (TaskState.FAILED, 1)
            assert f"slice-{index}" in task.reason

    def test_sigterm_to_the_runner_cancels(self, local: LocalHarness) -> None:
        array = local.scheduler().submit(local.spec(slices=2, hosts=2))
        local.running(array)
        local.signal_runner(f"{array}_0", signal.SIGTERM)
        assert local.ended(f"{array}_0").state is TaskState.CANCELLED
        assert not local.live(0)
        assert len(local.live(1)) == 2


class TestKilledRunners:
    @pytest.mark.parametrize("mode", ["wait", "fork", "stubborn fork"])
    def test_leave_no_host_and_an_ended_task(self, local: LocalHarness, mode: str) -> None:
        scheduler = local.scheduler()
        array = scheduler.submit(local.spec(slices=2, hosts=2, mode=mode))
        local.running(array)
        local.signal_runner(f"{array}_0", signal.SIGKILL)
        task = local.ended(f"{array}_0")
        assert (task.state, task.reason) == (TaskState.NODE_FAIL, "runner ended unexpectedly")
        assert {report.slice for report in local.reports() if local.lives(report.pid)} == {1}
        assert not [
            pid for r in local.reports() if r.slice == 0 for pid in r.children if local.lives(pid)
        ]
        assert local.task(f"{array}_0") == task
        scheduler.requeue(f"{array}_0")
        local.rerun(f"{array}_0", 2)
        assert len(local.live(0)) == 2

    def test_the_process_between_runner_and_hosts(self, local: LocalHarness) -> None:
        array = local.scheduler().submit(local.spec(hosts=2, mode="stubborn fork"))
        local.running(array)
        local.signal_keeper(f"{array}_0", signal.SIGKILL)
        task = local.ended(f"{array}_0")
        assert task.state is TaskState.FAILED
        assert "unexpectedly" in task.reason
        assert local.survivors() == []

    def test_together_with_the_process_in_between(self, local: LocalHarness) -> None:
        array = local.scheduler().submit(local.spec(hosts=2, mode="stubborn"))
        local.running(array)
        # Stopped, so that it can't do for the keeper what the kernel has to do.
        local.signal_runner(f"{array}_0", signal.SIGSTOP)
        local.signal_keeper(f"{array}_0", signal.SIGKILL)
        local.signal_runner(f"{array}_0", signal.SIGKILL)
        local.until(lambda: not local.survivors(), "both hosts end")
        assert local.ended(f"{array}_0").state is TaskState.NODE_FAIL

    def test_while_the_task_waits_for_its_begin_time(self, local: LocalHarness) -> None:
        scheduler = local.delayed_factory()()
        array = scheduler.submit(local.spec())
        local.running(array)
        scheduler.requeue(f"{array}_0")
        local.until(
            lambda: local.task(f"{array}_0").state is TaskState.PENDING, "the task is pending"
        )
        first = local.runner(f"{array}_0")
        local.signal_runner(f"{array}_0", signal.SIGKILL)
        local.until(lambda: not is_alive(first), "the runner is gone")
        assert local.task(f"{array}_0").state is TaskState.PENDING
        scheduler.release(f"{array}_0")
        local.rerun(f"{array}_0", 2)

    @pytest.mark.parametrize("order", ["cancel", "requeue"])
    def test_an_order_that_nobody_told_the_runner_is_told_again(
        self, local: LocalHarness, order: str
    ) -> None:
        """As left by a caller that was killed between writing its intent and the telling."""
        scheduler = local.scheduler()
        array = scheduler.submit(local.spec())
        local.running(array)
        path = local.arrays / array / "tasks" / "0" / "intent.json"
        intent = json.loads(path.read_text())
        changed = {"cancelled": True} if order == "cancel" else {"restarts": 1}
        path.write_text(json.dumps({**intent, **changed}))
        if order == "cancel":
            scheduler.cancel([f"{array}_0"])
            assert local.ended(f"{array}_0").state is TaskState.CANCELLED
            assert local.survivors() == []
        else:
            scheduler.requeue(f"{array}_0")
            local.rerun(f"{array}_0", 2)

    def test_a_pid_that_was_used_again_is_not_signalled(self, local: LocalHarness) -> None:
        scheduler = local.scheduler()
        array = scheduler.submit(local.spec())
        local.running(array)
        lock = local.arrays / array / "tasks" / "0" / "run.lock"
        runner = local.runner(f"{array}_0")
        # As if the runner's pid were ours now: SIGUSR1 would end this test run.
        lock.write_text(f'[{os.getpid()}, 1, "{runner.boot_id}"]')
        scheduler.requeue(f"{array}_0")
        assert local.task(f"{array}_0").state is TaskState.COMPLETING
        lock.write_text(f'[{runner.pid}, {runner.start_time}, "{runner.boot_id}"]')
        os.kill(runner.pid, signal.SIGUSR1)
        local.rerun(f"{array}_0", 2)


class TestRefusals:
    @pytest.mark.parametrize(("indices", "hosts"), [((254,), 1), ((0,), 255)])
    def test_slices_without_an_address(
        self, local: LocalHarness, indices: tuple[int, ...], hosts: int
    ) -> None:
        spec = replace(local.spec(), indices=indices, hosts_per_task=hosts)
        with pytest.raises(SchedulerError, match=r"not in 127\.63\.0\.0/16"):
            local.scheduler().submit(spec)

    def test_a_network_that_is_too_small(self, local: LocalHarness) -> None:
        scheduler = LocalScheduler(local.arrays, IPv4Network("127.63.0.0/23"))
        with pytest.raises(SchedulerError, match=r"slice 1, host 0"):
            scheduler.submit(local.spec(slices=2))

    def test_all_faults_at_once(self, local: LocalHarness) -> None:
        spec = replace(local.spec(), indices=(), argv=("x",), env={"A=B": "c"})
        with pytest.raises(SchedulerError) as caught:
            local.scheduler().submit(spec)
        for word in ("indices", "absolute", "'A=B'"):
            assert word in str(caught.value)
        assert not local.arrays.exists()

    @pytest.mark.parametrize("program", ["directory", "plain file"])
    def test_programs_that_are_none(self, local: LocalHarness, program: str) -> None:
        path = local.directory / program
        if program == "directory":
            path.mkdir()
        else:
            path.touch(mode=0o600)
        with pytest.raises(SchedulerError, match=program):
            local.scheduler().submit(replace(local.spec(), argv=(str(path),)))

    @pytest.mark.parametrize("place", ["arrays", "logs"])
    def test_places_that_can_not_be_written(self, local: LocalHarness, place: str) -> None:
        (local.directory / place).write_text("a file where a directory should be")
        spec = local.spec()
        with pytest.raises(SchedulerError, match=place):
            local.scheduler().submit(spec)
        (local.directory / place).unlink()
        assert local.scheduler().find(spec.tag) is None


class TestFiles:
    def test_a_damaged_run_is_an_unknown_state(self, local: LocalHarness) -> None:
        scheduler = local.scheduler()
        array = scheduler.submit(local.spec(slices=2))
        tasks = local.running(array)
        path = local.arrays / array / "tasks" / "1" / "run.json"
        before = path.read_text()
        path.write_text("{}")
        assert [task.state for task in scheduler.tasks([array])] == [
            TaskState.RUNNING,
            TaskState.UNKNOWN,
        ]
        assert str(path) in scheduler.tasks([array])[1].reason
        path.write_text(before)
        assert scheduler.tasks([array]) == tuple(tasks.values())

    def test_a_damaged_array_is_no_answer(self, local: LocalHarness) -> None:
        scheduler = local.scheduler()
        array = scheduler.submit(local.spec())
        local.running(array)
        path = local.arrays / array / "spec.json"
        before = path.read_text()
        path.write_text("nonsense")
        with pytest.raises(SchedulerUnavailable, match=r"spec\.json"):
            scheduler.tasks([array])
        with pytest.raises(SchedulerUnavailable, match=r"spec\.json"):
            scheduler.cancel([f"{array}_0"])
        path.write_text(before)
        assert scheduler.tasks([array])[0].state is TaskState.RUNNING

    def test_every_decision_is_logged(self, local: LocalHarness) -> None:
        scheduler = local.scheduler()
        spec = local.spec()
        array = scheduler.submit(spec)
        local.running(array)
        scheduler.requeue(f"{array}_0")
        local.rerun(f"{array}_0", 2)
        scheduler.cancel([f"{array}_0"])
        local.ended(f"{array}_0")
        log = (local.arrays / array / "runner.log").read_text()
        positions = [
            log.index(words)
            for words in (
                f"submitted with tag {spec.tag!r}",
                "task 0: runner started",
                "task 0, restarts 0: RUNNING",
                "task 0: requeued, restarts 1",
                "task 0, restarts 1: RUNNING",
                "task 0: cancelled",
                "task 0, restarts 1: CANCELLED",
            )
        ]
        assert positions == sorted(positions)

    def test_prune_forgets_what_ended_long_ago(self, local: LocalHarness) -> None:
        scheduler = LocalScheduler(local.arrays, NETWORK, local.kill_wait_s)
        old, half = replace(local.spec(), indices=(5,)), local.spec(slices=2)
        ended, live = scheduler.submit(old), scheduler.submit(half)
        local.running(ended)
        local.running(live)
        scheduler.cancel([f"{ended}_5", f"{live}_1"])
        local.ended(f"{ended}_5")
        local.ended(f"{live}_1")
        scheduler.prune(older_than_s=3600.0)
        assert scheduler.find(old.tag) == ended
        scheduler.prune(older_than_s=0.0)
        assert scheduler.find(old.tag) is None
        assert scheduler.tasks([ended]) == ()
        assert scheduler.find(half.tag) == live
        assert [path.name for path in local.arrays.iterdir()] == [live]

    def test_nothing_is_made_by_looking(self, tmp_path: Path) -> None:
        scheduler = LocalScheduler(tmp_path / "arrays", NETWORK)
        assert scheduler.find("x") is None
        assert scheduler.tasks(["local-000000000000", "../x", ""]) == ()
        scheduler.cancel(["local-000000000000_0"])
        assert list(tmp_path.iterdir()) == []


def test_a_relative_log_directory_is_the_submitters(
    local: LocalHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(local.directory)
    spec: ArraySpec = replace(local.spec(), log_dir=Path("logs"))
    local.running(local.scheduler().submit(spec))
    assert (local.directory / "logs" / "slice-0" / "host-0.log").exists()


def test_many_slices_start_together(local: LocalHarness) -> None:
    started = time.monotonic()
    local.running(local.scheduler().submit(local.spec(slices=8, hosts=2)))
    # Far more than it takes; one after the other, with a wait somewhere, would take longer.
    assert time.monotonic() - started < 5.0
