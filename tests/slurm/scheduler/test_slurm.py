# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What only the Slurm scheduler promises."""

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from slurm.devcluster.cluster import DevCluster
from tests.slurm.scheduler.harness import SlurmHarness

from pathways_slurm.scheduler.base import SchedulerError, Task
from pathways_slurm.scheduler.slurm import SlurmScheduler
from pathways_slurm.scheduler.slurm_options import SlurmOptions
from pathways_slurm.states import TaskState

SLICES = 4


class TestTasksThatNeverRan:
    def pending(self, harness: SlurmHarness) -> tuple[str, list[int]]:
        """An array of two slices more than there are, and the indices that have to wait."""
        array = harness.scheduler().submit(harness.spec(slices=SLICES + 2, hosts=2))

        def look() -> list[Task]:
            tasks = harness.scheduler().tasks([array])
            waiting = [t for t in tasks if t.state is TaskState.PENDING and t.reason == "Resources"]
            others = [t for t in tasks if t.state is TaskState.RUNNING]
            return waiting if (len(waiting), len(others)) == (2, SLICES) else []

        tasks = harness.until(look, "all slices but two run")
        assert [(task.nodes, task.restarts) for task in tasks] == [((), 0)] * 2
        return array, [task.index for task in tasks]

    def test_are_cancelled_when_a_user_cancels_them(self, harness: SlurmHarness) -> None:
        array, waiting = self.pending(harness)
        scheduler = harness.scheduler()
        scheduler.tasks([array])
        # Slurm keeps a record of the last task that waits, and of no other.
        for index in waiting:
            harness.slurm("scancel", f"{array}_{index}")
            for sight in (scheduler, harness.scheduler()):
                tasks = {task.index: task for task in sight.tasks([array])}
                assert tasks[index].state is TaskState.CANCELLED
                assert len(tasks) == SLICES + 2
            with pytest.raises(SchedulerError):
                scheduler.requeue(f"{array}_{index}")

    def test_are_cancelled_when_the_service_cancels_them(self, harness: SlurmHarness) -> None:
        array, waiting = self.pending(harness)
        for index in waiting:
            harness.scheduler().cancel([f"{array}_{index}"])
            assert harness.task(f"{array}_{index}").state is TaskState.CANCELLED


class TestHeldTasks:
    def test_are_shown_and_can_be_released(self, harness: SlurmHarness) -> None:
        scheduler = harness.scheduler()
        array = scheduler.submit(harness.spec())
        harness.running(array)
        harness.slurm("scontrol", "requeuehold", f"{array}_0")
        task = harness.until(
            lambda: t if (t := harness.task(f"{array}_0")).state is TaskState.HELD else None,
            "the task is held",
        )
        assert task is not None
        assert "held" in task.reason.lower()
        scheduler.requeue(task.id)
        assert harness.task(task.id).state is TaskState.HELD
        scheduler.release(task.id)
        harness.rerun(task.id, 2)


class TestNotices:
    def test_to_a_task_whose_hosts_have_not_started_are_lost(self, harness: SlurmHarness) -> None:
        """As in the moment between the start of a run's script and that of its step."""
        tag = harness.spec().tag
        array = harness.slurm(
            "sbatch",
            "--parsable",
            f"--job-name=pathways-{tag}",
            "--partition=tpu",
            "--array=0",
            "--output=/dev/null",
            "--wrap=exec sleep 100",
        ).strip()
        task = f"{array}_0"
        try:
            harness.until(lambda: harness.task(task).state is TaskState.RUNNING, "it runs")
            for number in (signal.SIGTERM, signal.SIGKILL):
                harness.scheduler().notify([task], number)
            assert harness.task(task).state is TaskState.RUNNING
        finally:
            harness.slurm("scancel", task)


class TestPower:
    def test_nodes_that_are_powered_down_are_off_and_come_back_for_the_next_run(
        self, harness: SlurmHarness, cluster: DevCluster
    ) -> None:
        """The user of this cluster is its administrator."""
        scheduler = harness.scheduler()
        array = scheduler.submit(harness.spec(slices=SLICES, hosts=2))
        task = harness.running(array)[0]
        nodes = [node.name for node in task.nodes]
        scheduler.notify([task.id], signal.SIGKILL)
        harness.ended(task.id)
        assert scheduler.power_down(nodes)
        harness.until(
            lambda: not any(cluster.processes(node) for node in nodes), "both nodes are off"
        )
        scheduler.requeue(task.id)
        scheduler.release(task.id)
        again = harness.rerun(task.id, 2)
        assert [node.name for node in again.nodes] == nodes
        assert set(nodes) <= cluster.pids.keys()


class TestExcludedNodes:
    def test_a_new_array_keeps_off_them(self, harness: SlurmHarness) -> None:
        scheduler = harness.scheduler()
        nodes = ("tpu-0-0", "tpu-1-1", "no-such-node")
        tasks = harness.running(scheduler.submit(replace(harness.spec(slices=2), avoid=nodes)))
        used = {node.name for task in tasks.values() for node in task.nodes}
        assert used.isdisjoint(nodes)

    def test_never_so_many_that_a_task_finds_no_place(self, harness: SlurmHarness) -> None:
        spec = harness.spec(slices=SLICES, hosts=2)
        scheduler = harness.scheduler()
        task = harness.running(scheduler.submit(spec))[0]
        nodes = [node.name for node in task.nodes]
        scheduler.requeue(task.id)
        harness.until(lambda: harness.task(task.id).state is TaskState.PENDING, "it is pending")
        assert scheduler.avoid(task.id, nodes[:1]) is False
        assert "ExcNodeList=(null)" in harness.slurm("scontrol", "-o", "show", "job", task.id)
        scheduler.release(task.id)
        assert [node.name for node in harness.rerun(task.id, 2).nodes] == nodes


class TestPreemption:
    @pytest.fixture
    def low(self, cluster: DevCluster, tmp_path: Path) -> Iterator[SlurmHarness]:
        """A service in the partition that can be preempted."""
        made = SlurmHarness(tmp_path, cluster, partition="tpu-low")
        yield made
        made.close()

    def test_a_preempted_task_is_known_as_such_and_comes_back(self, low: SlurmHarness) -> None:
        harness = low
        scheduler = harness.scheduler()
        array = scheduler.submit(harness.spec(hosts=2))
        task = harness.running(array)[0]
        assert not task.preempted
        winner = harness.slurm(
            "sbatch",
            "--parsable",
            "--partition=tpu",
            f"--nodelist={','.join(node.name for node in task.nodes)}",
            "--nodes=2",
            "--exclusive",
            "--output=/dev/null",
            "--wrap=sleep 1000",
        ).strip()
        try:

            def lost() -> Task | None:
                now = harness.task(task.id)
                return now if now.state.ended or now.state is TaskState.PENDING else None

            gone = harness.until(lost, "the task is preempted")
            assert gone is not None
            # 22.05 lets a script that ends in time be done; later versions requeue it.
            assert gone.preempted or gone.state is TaskState.PENDING
            harness.until(lambda: not harness.live(0), "its hosts have ended")
        finally:
            harness.slurm("scancel", winner)
        scheduler.requeue(task.id)
        scheduler.release(task.id)
        assert not harness.rerun(task.id, 2).preempted


class TestWhereAndWhat:
    def test_nodes_have_slurms_addresses(self, harness: SlurmHarness, cluster: DevCluster) -> None:
        array = harness.scheduler().submit(harness.spec(slices=SLICES, hosts=2))
        for task in harness.running(array).values():
            known = [cluster.node(node.name) for node in task.nodes]
            assert [node.address for node in task.nodes] == [node.address for node in known]
            # One task, one slice.
            assert len({node.slice_index for node in known}) == 1

    def test_service_node_within_a_job(self, harness: SlurmHarness, cluster: DevCluster) -> None:
        cpu = cluster.nodes[0]
        environment = {
            **os.environ,
            "SLURM_CONF": str(cluster.conf),
            "SLURMD_NODENAME": cpu.name,
        }
        scheduler = SlurmScheduler(harness.notes, SlurmOptions(), environment=environment)
        assert (scheduler.service_node().name, scheduler.service_node().address) == (
            cpu.name,
            cpu.address,
        )

    def test_who_ended_a_slice(self, harness: SlurmHarness) -> None:
        array = harness.scheduler().submit(harness.spec(slices=2, hosts=2, mode="stubborn"))
        harness.running(array)
        # Its neighbour is killed a second later, with a greater exit code.
        report = next(r for r in harness.live(1) if r.host == 1)
        os.kill(report.pid, 12)
        task = harness.ended(f"{array}_1")
        assert (task.exit_code, task.signal) == (3, None)
        assert task.reason == "host 1 exited with code 3"

    def test_every_node_is_cleaned_up_when_a_host_is_killed(
        self, harness: SlurmHarness, tmp_path: Path
    ) -> None:
        script, said = tmp_path / "epilog.sh", tmp_path / "said"
        script.write_text(f'#!/bin/bash\necho "host ${{SLURM_NODEID}}" >>{said}\n')
        script.chmod(0o700)
        spec = harness.spec(hosts=2)
        env = {**spec.env, "PATHWAYS_CONTAINER_EPILOG": str(script)}
        array = harness.scheduler().submit(replace(spec, env=env))
        harness.running(array)
        assert not said.exists()
        os.kill(harness.live(0)[1].pid, signal.SIGKILL)
        harness.ended(f"{array}_0")

        def done() -> bool:
            return said.exists() and sorted(said.read_text().splitlines()) == ["host 0", "host 1"]

        harness.until(done, "both hosts' epilogs have run")

    def test_nothing_of_an_outer_job_reaches_the_slices(
        self, harness: SlurmHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        leaking = {
            "SLURM_NTASKS": "3",
            "SLURM_NPROCS": "3",
            "SLURM_MEM_PER_CPU": "7",
            "SLURM_CPUS_PER_TASK": "2",
            "SLURM_STEP_NODELIST": "cpu0",
            "SBATCH_PARTITION": "cpu",
            "SBATCH_EXPORT": "NONE",
            "SQUEUE_FORMAT": "%i",
            "PATHWAYS_HOST_INDEX": "7",
            "PATHWAYS_NODE_NAMES": "elsewhere",
        }
        for name, value in leaking.items():
            monkeypatch.setenv(name, value)
        array = harness.scheduler().submit(harness.spec(hosts=2))
        task = harness.running(array)[0]
        assert [report.host for report in harness.reports()] == [0, 1]
        for report in harness.reports():
            assert report.env["PATHWAYS_HOST_INDEX"] == str(report.host)
            assert report.env["PATHWAYS_NODE_NAMES"] == ",".join(n.name for n in task.nodes)
            assert report.stdin == "/dev/null"
            for name in ("SLURM_MEM_PER_CPU", "SBATCH_PARTITION", "SQUEUE_FORMAT"):
                assert name not in report.env

    def test_logs_are_private_and_tell_runs_apart(self, harness: SlurmHarness) -> None:
        scheduler = harness.scheduler()
        array = scheduler.submit(harness.spec(first_incarnation=4))
        harness.running(array)
        scheduler.requeue(f"{array}_0")
        scheduler.release(f"{array}_0")
        harness.rerun(f"{array}_0", 5)
        directory = harness.log_dir / "slice-0"
        assert directory.stat().st_mode & 0o777 == 0o700
        for name in ("host-0.log", "batch.log"):
            assert (directory / name).stat().st_mode & 0o777 == 0o600
            text = (directory / name).read_text()
            assert 0 <= text.index("incarnation 4") < text.index("incarnation 5")

    @pytest.mark.parametrize("hosts", [3, 1000])
    def test_slices_that_no_switch_has_are_refused(self, harness: SlurmHarness, hosts: int) -> None:
        spec = replace(harness.spec(), hosts_per_task=hosts)
        with pytest.raises(SchedulerError, match="PATHWAYS_SLURM_SLICE_FEATURES is not set"):
            harness.scheduler().submit(spec)
        assert harness.arrays(spec.tag) == set()

    def test_slurms_own_words_for_a_refusal(self, harness: SlurmHarness) -> None:
        scheduler = SlurmScheduler(
            harness.notes,
            SlurmOptions(partition="no-such"),
            environment={**os.environ, "SLURM_CONF": str(harness.cluster.conf)},
        )
        spec = harness.spec()
        with pytest.raises(SchedulerError, match="invalid partition specified: no-such"):
            scheduler.submit(spec)
        assert scheduler.find(spec.tag) is None
