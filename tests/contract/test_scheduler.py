# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What every scheduler promises: see pathways_slurm.scheduler.base."""

import os
import signal
import subprocess
import time
from dataclasses import replace

import pytest
from tests.contract.harness import SchedulerHarness

from pathways_slurm.scheduler.base import Power, SchedulerError
from pathways_slurm.states import TaskState

ENDINGS = [
    pytest.param(signal.SIGKILL, (None, 9), id="killed"),
    pytest.param(signal.SIGUSR1, (0, None), id="exits-0"),
    pytest.param(signal.SIGUSR2, (3, None), id="exits-3"),
]


class TestSubmit:
    def test_every_host_of_every_slice_runs(self, harness: SchedulerHarness) -> None:
        array = harness.scheduler().submit(harness.spec(slices=3, hosts=2))
        tasks = harness.running(array)
        assert sorted(tasks) == [0, 1, 2]
        assert [task.id for task in tasks.values()] == [f"{array}_{i}" for i in range(3)]
        for task in tasks.values():
            assert (task.restarts, task.incarnation, len(task.nodes)) == (0, 1, 2)
            assert abs(task.since - time.time()) < harness.patience_s
        assert [(r.slice, r.host) for r in harness.reports()] == [
            (index, host) for index in range(3) for host in range(2)
        ]

    def test_a_host_knows_its_place(self, harness: SchedulerHarness) -> None:
        array = harness.scheduler().submit(harness.spec(slices=2, hosts=2, first_incarnation=7))
        tasks = harness.running(array)
        for report in harness.reports():
            task = tasks[report.slice]
            assert task.incarnation == 7
            expected = {
                "PATHWAYS_SLICE_INDEX": str(report.slice),
                "PATHWAYS_HOST_INDEX": str(report.host),
                "PATHWAYS_INCARNATION": "7",
                "PATHWAYS_NODE_NAMES": ",".join(node.name for node in task.nodes),
                "PATHWAYS_NODE_ADDRESSES": ",".join(node.address for node in task.nodes),
                "A B": "c=d,\n",
            }
            assert {name: report.env.get(name) for name in expected} == expected
            assert report.argv == ("an argument", "")

    def test_nodes_are_distinct(self, harness: SchedulerHarness) -> None:
        scheduler = harness.scheduler()
        tasks = harness.running(scheduler.submit(harness.spec(slices=2, hosts=2)))
        nodes = [node for task in tasks.values() for node in task.nodes]
        assert len({node.name for node in nodes}) == 4
        assert len({node.address for node in nodes}) == 4
        assert scheduler.service_node() not in nodes

    def test_the_submitters_environment_stays_with_it(
        self, harness: SchedulerHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SECRET_OF_THE_SUBMITTER", "x")
        monkeypatch.setenv("LC_TIME", "C.UTF-8")
        harness.running(harness.scheduler().submit(harness.spec()))
        (report,) = harness.reports()
        assert "SECRET_OF_THE_SUBMITTER" not in report.env
        kept = {"HOME", "PATH", "LC_TIME"} & set(os.environ)
        assert {name: report.env[name] for name in kept} == {n: os.environ[n] for n in kept}

    def test_indices_need_not_be_a_range(self, harness: SchedulerHarness) -> None:
        spec = replace(harness.spec(), indices=(5, 2))
        tasks = harness.running(harness.scheduler().submit(spec))
        assert sorted(tasks) == [2, 5]

    def test_a_tag_is_submitted_once(self, harness: SchedulerHarness) -> None:
        spec = harness.spec(slices=2)
        scheduler = harness.scheduler()
        assert scheduler.find(spec.tag) is None
        array = scheduler.submit(spec)
        harness.running(array)
        assert scheduler.submit(spec) == array
        assert harness.scheduler().submit(replace(spec, indices=(0, 1, 2))) == array
        assert harness.scheduler().find(spec.tag) == array
        assert len(harness.running(array)) == 2
        assert len(harness.reports()) == 2

    def test_an_ended_array_is_found_and_not_run_again(self, harness: SchedulerHarness) -> None:
        spec = harness.spec()
        scheduler = harness.scheduler()
        array = scheduler.submit(spec)
        harness.running(array)
        scheduler.cancel([f"{array}_0"])
        harness.ended(f"{array}_0")
        assert scheduler.find(spec.tag) == array
        assert scheduler.submit(spec) == array
        assert harness.task(f"{array}_0").state is TaskState.CANCELLED

    def test_several_processes_submit_one_tag_at_once(self, harness: SchedulerHarness) -> None:
        spec = harness.spec(slices=2)
        submitters = [harness.elsewhere("submit", spec) for _ in range(5)]
        (array,) = {harness.result(submitter) for submitter in submitters}
        harness.running(array)
        assert len(harness.reports()) == 2

    def test_tasks_outlive_their_submitter(self, harness: SchedulerHarness) -> None:
        spec = harness.spec(slices=2)
        submitter = harness.elsewhere("submit", spec, die=True)
        array = harness.result(submitter)
        assert submitter.returncode == -signal.SIGKILL
        tasks = harness.running(array)
        assert harness.scheduler().find(spec.tag) == array
        assert len(tasks) == 2

    def test_a_submission_killed_half_way_is_completed_by_the_next(
        self, harness: SchedulerHarness
    ) -> None:
        spec = harness.spec(slices=2)
        for moment in range(8):
            submitter = harness.elsewhere("submit", spec)
            try:
                # Not to wait for something: the moment of the kill is what varies.
                submitter.communicate(timeout=0.06 + 0.02 * moment)
            except subprocess.TimeoutExpired:
                submitter.kill()
                submitter.communicate()
        array = harness.scheduler().submit(spec)
        harness.running(array)
        assert len(harness.reports()) == 2

    def test_output_of_a_host_is_in_its_own_file(self, harness: SchedulerHarness) -> None:
        array = harness.scheduler().submit(harness.spec(slices=2, hosts=2))
        harness.running(array)
        for index in range(2):
            for host in range(2):
                text = (harness.log_dir / f"slice-{index}" / f"host-{host}.log").read_text()
                assert f"worker {index} {host} 1\n" in text
                assert "a word on stderr\n" in text
                assert text.count("worker ") == 1


class TestRefusals:
    def test_a_program_that_is_not_there(self, harness: SchedulerHarness) -> None:
        spec = replace(harness.spec(), argv=("/no/such/program",))
        with pytest.raises(SchedulerError, match="/no/such/program"):
            harness.scheduler().submit(spec)
        assert harness.scheduler().find(spec.tag) is None

    def test_a_program_with_a_relative_path(self, harness: SchedulerHarness) -> None:
        with pytest.raises(SchedulerError, match="absolute"):
            harness.scheduler().submit(replace(harness.spec(), argv=("sleep", "1")))

    def test_more_hosts_than_there_can_be(self, harness: SchedulerHarness) -> None:
        spec = replace(harness.spec(), hosts_per_task=10_000)
        with pytest.raises(SchedulerError):
            harness.scheduler().submit(spec)
        assert harness.scheduler().find(spec.tag) is None

    @pytest.mark.parametrize("indices", [(), (-1,), (0, 0)])
    def test_indices_that_make_no_sense(
        self, harness: SchedulerHarness, indices: tuple[int, ...]
    ) -> None:
        with pytest.raises(SchedulerError):
            harness.scheduler().submit(replace(harness.spec(), indices=indices))

    @pytest.mark.parametrize("verb", ["requeue", "release"])
    def test_tasks_that_do_not_exist(self, harness: SchedulerHarness, verb: str) -> None:
        scheduler = harness.scheduler()
        array = scheduler.submit(harness.spec())
        for unknown in (f"{array}_77", "99999999_0", "", "nonsense"):
            with pytest.raises(SchedulerError):
                getattr(scheduler, verb)(unknown)


class TestTheEndOfAHost:
    @pytest.mark.parametrize(("number", "status"), ENDINGS)
    @pytest.mark.parametrize("host", [0, 1])
    def test_ends_its_slice_and_only_its_slice(
        self,
        harness: SchedulerHarness,
        number: signal.Signals,
        status: tuple[int | None, int | None],
        host: int,
    ) -> None:
        array = harness.scheduler().submit(harness.spec(slices=2, hosts=2))
        before = harness.running(array)
        harness.signal_host(1, host, number)
        task = harness.ended(f"{array}_1")
        assert task.state in (TaskState.FAILED, TaskState.COMPLETED)
        if number is not signal.SIGUSR1:
            assert task.state is TaskState.FAILED
            assert (task.exit_code, task.signal) == status
        harness.until(lambda: not harness.live(1), "the other host of the slice ends")
        assert len(harness.live(0)) == 2
        assert harness.task(f"{array}_0") == before[0]

    def test_only_host_exits_0(self, harness: SchedulerHarness) -> None:
        array = harness.scheduler().submit(harness.spec())
        harness.running(array)
        harness.signal_host(0, 0, signal.SIGUSR1)
        task = harness.ended(f"{array}_0")
        assert (task.state, task.exit_code, task.signal) == (TaskState.COMPLETED, 0, None)

    def test_a_host_that_ignores_sigterm_is_killed(self, harness: SchedulerHarness) -> None:
        array = harness.scheduler().submit(harness.spec(hosts=2, mode="stubborn"))
        harness.running(array)
        harness.signal_host(0, 1, signal.SIGUSR2)
        killed = time.monotonic()
        harness.ended(f"{array}_0")
        assert not harness.live(0)
        assert time.monotonic() - killed >= 0.8 * harness.kill_wait_s


class TestRequeue:
    def test_of_a_failed_task_runs_it_again(self, harness: SchedulerHarness) -> None:
        scheduler = harness.scheduler()
        array = scheduler.submit(harness.spec(slices=2, hosts=2, first_incarnation=4))
        harness.running(array)
        for attempt in (1, 2):
            harness.signal_host(1, 0, signal.SIGKILL)
            harness.ended(f"{array}_1")
            scheduler.requeue(f"{array}_1")
            scheduler.release(f"{array}_1")
            task = harness.rerun(f"{array}_1", 4 + attempt)
            assert (task.restarts, task.incarnation) == (attempt, 4 + attempt)
            assert len(task.nodes) == 2
            assert {r.env["PATHWAYS_INCARNATION"] for r in harness.live(1)} == {str(4 + attempt)}
        assert harness.task(f"{array}_0").restarts == 0

    def test_of_a_completed_task_runs_it_again(self, harness: SchedulerHarness) -> None:
        scheduler = harness.scheduler()
        array = scheduler.submit(harness.spec())
        harness.running(array)
        harness.signal_host(0, 0, signal.SIGUSR1)
        harness.ended(f"{array}_0")
        scheduler.requeue(f"{array}_0")
        scheduler.release(f"{array}_0")
        harness.rerun(f"{array}_0", 2)

    def test_of_a_running_task_ends_its_run_first(self, harness: SchedulerHarness) -> None:
        scheduler = harness.scheduler()
        array = scheduler.submit(harness.spec(hosts=2))
        harness.running(array)
        scheduler.requeue(f"{array}_0")
        harness.until(lambda: not harness.live(0, 1), "the first run ends")
        scheduler.release(f"{array}_0")
        task = harness.rerun(f"{array}_0", 2)
        assert task.restarts == 1
        assert not harness.live(0, 1)

    def test_twice_gives_one_run(self, harness: SchedulerHarness) -> None:
        scheduler = harness.scheduler()
        array = scheduler.submit(harness.spec())
        harness.running(array)
        harness.signal_host(0, 0, signal.SIGKILL)
        harness.ended(f"{array}_0")
        callers = [harness.elsewhere("requeue", f"{array}_0") for _ in range(2)]
        for caller in callers:
            harness.result(caller)
        scheduler.release(f"{array}_0")
        task = harness.until(
            lambda: t if (t := harness.task(f"{array}_0")).state is TaskState.RUNNING else None,
            "the task runs again",
        )
        # Both while it had ended, or the second when it ran already; never two at a time.
        assert task is not None
        harness.rerun(f"{array}_0", task.incarnation)
        assert len(harness.live(0)) == 1

    def test_of_a_pending_task_changes_nothing(self, harness: SchedulerHarness) -> None:
        scheduler = harness.delayed_factory()()
        array = scheduler.submit(harness.spec())
        harness.running(array)
        harness.signal_host(0, 0, signal.SIGKILL)
        harness.ended(f"{array}_0")
        scheduler.requeue(f"{array}_0")
        pending = harness.task(f"{array}_0")
        assert (pending.state, pending.restarts) == (TaskState.PENDING, 1)
        assert pending.incarnation == 2
        assert pending.nodes == ()
        scheduler.requeue(f"{array}_0")
        assert harness.task(f"{array}_0") == pending

    def test_release_lifts_the_wait(self, harness: SchedulerHarness) -> None:
        scheduler = harness.delayed_factory()()
        array = scheduler.submit(harness.spec())
        harness.running(array)
        scheduler.requeue(f"{array}_0")
        harness.until(
            lambda: (
                (t := harness.task(f"{array}_0")).state is TaskState.PENDING
                and t.reason == "BeginTime"
            ),
            "the task waits for its begin time",
        )
        harness.scheduler().release(f"{array}_0")
        harness.rerun(f"{array}_0", 2)

    def test_release_of_a_running_or_ended_task_changes_nothing(
        self, harness: SchedulerHarness
    ) -> None:
        scheduler = harness.scheduler()
        array = scheduler.submit(harness.spec())
        running = harness.running(array)[0]
        scheduler.release(running.id)
        assert harness.task(running.id) == running
        harness.signal_host(0, 0, signal.SIGKILL)
        ended = harness.ended(running.id)
        scheduler.release(running.id)
        assert harness.task(running.id) == ended

    def test_logs_are_appended(self, harness: SchedulerHarness) -> None:
        scheduler = harness.scheduler()
        array = scheduler.submit(harness.spec())
        harness.running(array)
        scheduler.requeue(f"{array}_0")
        harness.until(lambda: not harness.live(0, 1), "the first run ends")
        scheduler.release(f"{array}_0")
        harness.rerun(f"{array}_0", 2)
        text = (harness.log_dir / "slice-0" / "host-0.log").read_text()
        assert text.index("worker 0 0 1\n") < text.index("worker 0 0 2\n")

    def test_of_hosts_that_are_stopped_ends_them(self, harness: SchedulerHarness) -> None:
        """A stopped process takes no SIGTERM; this one ignores it as well."""
        scheduler = harness.scheduler()
        array = scheduler.submit(harness.spec(hosts=2, mode="stubborn"))
        harness.running(array)
        for host in (0, 1):
            harness.signal_host(0, host, signal.SIGSTOP)
        scheduler.requeue(f"{array}_0")
        harness.until(lambda: not harness.live(0, 1), "the first run ends")
        scheduler.release(f"{array}_0")
        harness.rerun(f"{array}_0", 2)


class TestCancel:
    def test_ends_a_running_task_for_good(self, harness: SchedulerHarness) -> None:
        scheduler = harness.scheduler()
        array = scheduler.submit(harness.spec(slices=2, hosts=2))
        harness.running(array)
        scheduler.cancel([f"{array}_1"])
        assert harness.ended(f"{array}_1").state is TaskState.CANCELLED
        harness.until(lambda: not harness.live(1), "both hosts end")
        assert len(harness.live(0)) == 2
        with pytest.raises(SchedulerError, match="cancel"):
            scheduler.requeue(f"{array}_1")
        assert harness.task(f"{array}_1").state is TaskState.CANCELLED
        assert not harness.live(1)

    def test_of_a_pending_task(self, harness: SchedulerHarness) -> None:
        scheduler = harness.delayed_factory()()
        array = scheduler.submit(harness.spec())
        harness.running(array)
        scheduler.requeue(f"{array}_0")
        harness.until(
            lambda: harness.task(f"{array}_0").state is TaskState.PENDING, "the task is pending"
        )
        scheduler.cancel([f"{array}_0"])
        assert harness.ended(f"{array}_0").state is TaskState.CANCELLED
        scheduler.release(f"{array}_0")
        assert harness.task(f"{array}_0").state is TaskState.CANCELLED
        assert not harness.live(0)

    def test_right_after_the_submission(self, harness: SchedulerHarness) -> None:
        scheduler = harness.scheduler()
        array = scheduler.submit(harness.spec(slices=3))
        scheduler.cancel([f"{array}_{index}" for index in range(3)])
        for index in range(3):
            assert harness.ended(f"{array}_{index}").state is TaskState.CANCELLED
        harness.until(lambda: not harness.survivors(), "nothing is left")

    def test_of_a_task_that_is_being_requeued(self, harness: SchedulerHarness) -> None:
        scheduler = harness.scheduler()
        array = scheduler.submit(harness.spec())
        harness.running(array)
        scheduler.requeue(f"{array}_0")
        scheduler.cancel([f"{array}_0"])
        assert harness.ended(f"{array}_0").state is TaskState.CANCELLED
        harness.until(lambda: not harness.survivors(), "nothing is left")

    def test_of_hosts_that_are_stopped_ends_them(self, harness: SchedulerHarness) -> None:
        scheduler = harness.scheduler()
        array = scheduler.submit(harness.spec(hosts=2))
        harness.running(array)
        harness.signal_host(0, 1, signal.SIGSTOP)
        scheduler.cancel([f"{array}_0"])
        assert harness.ended(f"{array}_0").state is TaskState.CANCELLED
        harness.until(lambda: not harness.survivors(), "nothing is left")

    def test_of_ended_and_unknown_tasks_is_fine(self, harness: SchedulerHarness) -> None:
        scheduler = harness.scheduler()
        array = scheduler.submit(harness.spec())
        harness.running(array)
        harness.signal_host(0, 0, signal.SIGUSR2)
        ended = harness.ended(f"{array}_0")
        scheduler.cancel([f"{array}_0", f"{array}_9", "99999999_0"])
        scheduler.cancel([])
        assert harness.task(f"{array}_0") == ended


class TestNotify:
    def test_reaches_every_host_of_the_task_and_ends_none(self, harness: SchedulerHarness) -> None:
        scheduler = harness.scheduler()
        array = scheduler.submit(harness.spec(slices=2, hosts=2, mode="note"))
        before = harness.running(array)
        scheduler.notify([f"{array}_1"], signal.SIGTERM)
        harness.until(lambda: harness.noted(1, signal.SIGTERM) == [1, 1], "both hosts have it")
        scheduler.notify([f"{array}_1", f"{array}_0"], signal.SIGHUP)
        harness.until(lambda: harness.noted(1, signal.SIGHUP) == [1, 1], "both hosts have it")
        harness.until(lambda: harness.noted(0, signal.SIGHUP) == [1, 1], "the others too")
        # Longer than it takes to end a run.
        harness.holds(lambda: harness.running(array) == before, 2 * harness.kill_wait_s)
        assert harness.noted(1, signal.SIGTERM) == [1, 1]
        assert harness.noted(0, signal.SIGTERM) == [0, 0]

    def test_hosts_that_end_of_it_have_ended_by_themselves(self, harness: SchedulerHarness) -> None:
        scheduler = harness.scheduler()
        array = scheduler.submit(harness.spec(hosts=2, mode="oblige"))
        harness.running(array)
        scheduler.notify([f"{array}_0"], signal.SIGTERM)
        task = harness.ended(f"{array}_0")
        assert task.state in (TaskState.COMPLETED, TaskState.FAILED)
        assert not task.preempted
        scheduler.requeue(task.id)
        scheduler.release(task.id)
        harness.rerun(task.id, 2)

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
    def test_hosts_that_die_of_it_have_failed(
        self, harness: SchedulerHarness, number: signal.Signals
    ) -> None:
        """Not been cancelled, which would be for good."""
        scheduler = harness.scheduler()
        array = scheduler.submit(harness.spec(hosts=2))
        harness.running(array)
        scheduler.notify([f"{array}_0"], number)
        task = harness.ended(f"{array}_0")
        assert (task.state, task.exit_code, task.signal) == (TaskState.FAILED, None, number)
        scheduler.requeue(task.id)
        scheduler.release(task.id)
        harness.rerun(task.id, 2)

    def test_of_unknown_pending_and_ended_tasks_is_fine(self, harness: SchedulerHarness) -> None:
        scheduler = harness.delayed_factory()()
        array = scheduler.submit(harness.spec(slices=2))
        harness.running(array)
        harness.signal_host(0, 0, signal.SIGUSR2)
        harness.signal_host(1, 0, signal.SIGUSR2)
        ended = harness.ended(f"{array}_0")
        harness.ended(f"{array}_1")
        scheduler.requeue(f"{array}_1")
        pending = harness.task(f"{array}_1")
        assert pending.state is TaskState.PENDING
        scheduler.notify([f"{array}_{i}" for i in (0, 1, 9)], signal.SIGTERM)
        scheduler.notify(["99999999_0", "", "nonsense"], signal.SIGTERM)
        scheduler.notify([], signal.SIGTERM)
        assert harness.task(ended.id) == ended
        assert harness.task(pending.id) == pending


class TestObservation:
    def test_is_the_same_from_every_process(self, harness: SchedulerHarness) -> None:
        array = harness.scheduler().submit(harness.spec(slices=2, hosts=2))
        harness.running(array)
        harness.signal_host(1, 0, signal.SIGKILL)
        harness.ended(f"{array}_1")
        here = harness.scheduler().tasks([array])
        assert harness.result(harness.elsewhere("tasks", [array])) == here
        assert [task.index for task in here] == [0, 1]

    def test_of_several_arrays(self, harness: SchedulerHarness) -> None:
        scheduler = harness.scheduler()
        first = scheduler.submit(harness.spec())
        second = scheduler.submit(replace(harness.spec(), indices=(3,)))
        harness.running(first)
        harness.running(second)
        ids = [task.id for task in scheduler.tasks([first, second])]
        assert sorted(ids) == sorted([f"{first}_0", f"{second}_3"])
        assert scheduler.tasks([]) == ()


class TestNodes:
    def test_a_task_keeps_off_nodes_or_is_said_not_to(self, harness: SchedulerHarness) -> None:
        scheduler = harness.delayed_factory()()
        array = scheduler.submit(harness.spec(hosts=2))
        before = harness.running(array)[0]
        nodes = [node.name for node in before.nodes]
        for incarnation in (2, 3):
            # Also across a requeue that nobody repeats it for.
            harness.signal_host(0, 0, signal.SIGKILL)
            harness.ended(before.id)
            scheduler.requeue(before.id)
            if incarnation == 2:
                pending = harness.task(before.id)
                avoids = scheduler.avoid(before.id, nodes)
                assert harness.scheduler().avoid(before.id, nodes) is avoids
                assert harness.task(before.id) == pending
            scheduler.release(before.id)
            after = {node.name for node in harness.rerun(before.id, incarnation).nodes}
            assert after.isdisjoint(nodes) is avoids

    def test_a_task_may_run_anywhere_again(self, harness: SchedulerHarness) -> None:
        scheduler = harness.delayed_factory()()
        array = scheduler.submit(harness.spec())
        before = harness.running(array)[0]
        scheduler.requeue(before.id)
        harness.until(
            lambda: harness.task(before.id).state is TaskState.PENDING, "the task is pending"
        )
        scheduler.avoid(before.id, [node.name for node in before.nodes])
        assert scheduler.avoid(before.id, []) is True
        scheduler.release(before.id)
        assert harness.rerun(before.id, 2).nodes == before.nodes

    def test_no_task_no_list(self, harness: SchedulerHarness) -> None:
        with pytest.raises(SchedulerError, match="no task"):
            harness.scheduler().avoid("999999_0", [])

    def test_nodes_with_a_task_are_there_and_stay_so(self, harness: SchedulerHarness) -> None:
        scheduler = harness.scheduler()
        task = harness.running(scheduler.submit(harness.spec(hosts=2)))[0]
        nodes = [node.name for node in task.nodes]
        assert scheduler.power_down([]) is False
        assert scheduler.power_down(nodes) is False
        assert scheduler.power(nodes) == dict.fromkeys(nodes, Power.ON)
        assert harness.task(task.id) == task
        assert len(harness.live(0)) == 2
