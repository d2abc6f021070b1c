# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""slurm.py on a Slurm that the test plays: what real clusters do rarely."""

import signal
import socket
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.slurm.support import FakeSlurm, node, programs, row

from pathways_slurm.scheduler.base import (
    ArraySpec,
    Node,
    SchedulerError,
    SchedulerUnavailable,
)
from pathways_slurm.scheduler.slurm import SlurmScheduler
from pathways_slurm.scheduler.slurm_options import SlurmOptions
from pathways_slurm.states import TaskState

LOG = "=== slice {} incarnation {}: Slurm job 44 on n0 2026-11-29T16:25:14+0000 ===\n"


class Case:
    """A service that has submitted array 44, slices 0 and 1, first incarnation 3."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.slurm = FakeSlurm()
        self.slurm.answers = {
            "scontrol show hostnames n[0-1]": (0, "n0\nn1\n"),
            "scontrol --oneliner show node": (
                0,
                f"{node('n0', '10.0.0.10')}\n{node('n1', '10.0.0.11')}\n",
            ),
        }
        self.path = programs(directory / "bin")
        self.spec = ArraySpec(
            tag="run-0",
            indices=(0, 1),
            hosts_per_task=1,
            argv=("/bin/true",),
            first_incarnation=3,
            log_dir=directory / "logs",
        )
        assert self.scheduler().submit(self.spec) == "44"
        self.slurm.calls.clear()

    def scheduler(self, **environment: str) -> SlurmScheduler:
        return SlurmScheduler(
            self.directory / "notes",
            SlurmOptions(),
            timeout_s=0.5,
            environment={"PATH": self.path, **environment},
            runner=self.slurm,
        )


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


class TestTasks:
    def test_one_squeue_and_what_is_new_of_nodes(self, case: Case) -> None:
        case.slurm.rows = [row(0, nodes="n[0-1]", restarts=2), row(1, "PENDING", nodes="")]
        scheduler = case.scheduler()
        tasks = scheduler.tasks(["44"])
        assert [task.id for task in tasks] == ["44_0", "44_1"]
        assert tasks[0].nodes == (Node("n0", "10.0.0.10"), Node("n1", "10.0.0.11"))
        assert tasks[0].incarnation == 5
        assert tasks[1].nodes == ()
        assert [call[0] for call in case.slurm.calls] == ["squeue", "scontrol", "scontrol"]
        case.slurm.calls.clear()
        assert scheduler.tasks(["44"]) == tasks
        assert [call[0] for call in case.slurm.calls] == ["squeue"]

    def test_what_is_known_of_nodes_is_kept_with_several_arrays(self, case: Case) -> None:
        case.slurm.sbatch = lambda: (0, "45\n")
        scheduler = case.scheduler()
        scheduler.submit(replace(case.spec, tag="run-1", indices=(1,)))
        case.slurm.rows = [
            row(0, nodes="n[0-1]"),
            row(1, array=45, nodes="n1", name="pathways-run-1"),
        ]
        tasks = scheduler.tasks(["44", "45", "46"])
        assert [len(task.nodes) for task in tasks] == [2, 1]
        case.slurm.calls.clear()
        assert scheduler.tasks(["44", "45", "46"]) == tasks
        assert [call[0] for call in case.slurm.calls] == ["squeue"]

    def test_nodes_of_a_later_run_are_looked_up_again(self, case: Case) -> None:
        case.slurm.rows = [row(0)]
        scheduler = case.scheduler()
        assert scheduler.tasks(["44"])[0].nodes == (Node("n0", "10.0.0.10"),)
        case.slurm.answers["scontrol --oneliner show node"] = (0, node("n0", "10.0.0.99"))
        assert scheduler.tasks(["44"])[0].nodes == (Node("n0", "10.0.0.10"),)
        case.slurm.rows = [row(0, restarts=1, start="2026-11-29T16:30:00")]
        assert scheduler.tasks(["44"])[0].nodes == (Node("n0", "10.0.0.99"),)

    def test_nodes_that_are_being_started_get_their_address_on_the_way(self, case: Case) -> None:
        case.slurm.answers["scontrol --oneliner show node"] = (0, node("n0", "n0"))
        case.slurm.rows = [row(0, "CONFIGURING")]
        scheduler = case.scheduler()
        assert scheduler.tasks(["44"])[0].nodes == (Node("n0", "n0"),)
        case.slurm.answers["scontrol --oneliner show node"] = (0, node("n0", "10.0.0.10"))
        case.slurm.rows = [row(0)]
        assert scheduler.tasks(["44"])[0].nodes == (Node("n0", "10.0.0.10"),)

    def test_a_task_that_is_ending_keeps_all_its_nodes(self, case: Case) -> None:
        case.slurm.rows = [row(0, nodes="n[0-1]")]
        scheduler = case.scheduler()
        nodes = scheduler.tasks(["44"])[0].nodes
        case.slurm.rows = [row(0, "COMPLETING", nodes="n1")]
        assert scheduler.tasks(["44"])[0].nodes == nodes

    def test_a_node_that_has_left_the_cluster(self, case: Case) -> None:
        case.slurm.answers["scontrol --oneliner show node"] = (1, "Node n0 not found")
        case.slurm.rows = [row(0, "FAILED", exit_status="256")]
        assert case.scheduler().tasks(["44"])[0].nodes == (Node("n0", "n0"),)

    def test_never_half_a_snapshot(self, case: Case) -> None:
        case.slurm.rows = [row(0)]
        case.slurm.answers["scontrol --oneliner show node"] = (1, "Socket timed out on send/recv")
        with pytest.raises(SchedulerUnavailable):
            case.scheduler().tasks(["44"])
        case.slurm.rows = [row(0), "slurmctld: something new"]
        with pytest.raises(SchedulerUnavailable, match="can't be read"):
            case.scheduler().tasks(["44"])

    def test_an_id_that_slurm_gave_a_second_time_is_another_job(self, case: Case) -> None:
        # slurmctld was killed right after the submission, and somebody else's array came next.
        case.slurm.rows = [row(0, name="training"), row(1, name="pathways-run-7")]
        scheduler = case.scheduler()
        assert scheduler.tasks(["44"]) == ()
        scheduler.cancel(["44_0", "44_1"])
        assert case.slurm.count("scancel") == 0
        for verb in (scheduler.requeue, scheduler.release):
            with pytest.raises(SchedulerError, match="lists no task '44_0'"):
                verb("44_0")
        assert case.slurm.count("scontrol") == 0

    def test_the_first_incarnation_without_notes_is_in_the_comment(self, case: Case) -> None:
        case.slurm.rows = [
            row(0, array=50, comment="pathways tag=run-5 first=8", name="pathways-run-5"),
            row(1, array=50, comment="an administrator's word", name="pathways-run-5"),
            row(0, array=44, comment="an administrator's word"),
        ]
        tasks = case.scheduler().tasks(["50", "44"])
        assert {task.id: task.incarnation for task in tasks} == {"50_0": 8, "50_1": 1, "44_0": 3}

    def test_the_host_that_ended_a_slice(self, case: Case) -> None:
        log = case.directory / "logs" / "slice-0" / "batch.log"
        failed = row(0, "FAILED", reason="NonZeroExitCode", exit_status="36608", restarts=1)
        case.slurm.rows = [failed]
        scheduler = case.scheduler()
        (task,) = scheduler.tasks(["44"])
        assert (task.signal, task.reason) == (15, "a host was ended by signal 15")
        ended = LOG.format(0, 3) + "srun: error: n0: task 0: Exited with exit code 5\n"
        log.write_text(ended)
        # That was an earlier run.
        assert scheduler.tasks(["44"]) == (task,)
        log.write_text(ended + LOG.format(0, 4) + "srun: error: n1: task 1: Killed\n")
        (task,) = scheduler.tasks(["44"])
        assert (task.signal, task.reason) == (9, "host 1 was ended by signal 9")
        # Known from then on.
        log.unlink()
        assert scheduler.tasks(["44"]) == (task,)
        case.slurm.rows = [row(0, "PENDING", restarts=2, start="N/A", nodes="")]
        assert scheduler.tasks(["44"])[0].reason == ""

    def test_nothing_is_asked_for_no_array(self, case: Case) -> None:
        assert case.scheduler().tasks([]) == ()
        assert case.slurm.calls == []


class TestTasksThatSlurmHasForgotten:
    def test_cancelled_between_two_looks(self, case: Case) -> None:
        case.slurm.rows = [row(0), row(1, "PENDING", nodes="")]
        scheduler = case.scheduler()
        scheduler.tasks(["44"])
        case.slurm.rows = [row(0)]
        for sight in (scheduler, case.scheduler()):
            first, second = sight.tasks(["44"])
            assert first.state is TaskState.RUNNING
            assert (second.id, second.state) == ("44_1", TaskState.CANCELLED)
            assert second.incarnation == 3

    def test_a_whole_array_cancelled_at_once(self, case: Case) -> None:
        case.slurm.rows = [row("N/A", "CANCELLED", nodes="")]
        tasks = case.scheduler().tasks(["44"])
        assert [task.state for task in tasks] == [TaskState.CANCELLED] * 2
        # After MinJobAge.
        case.slurm.rows = []
        assert case.scheduler().tasks(["44"]) == tasks

    @pytest.mark.parametrize(
        "before", [row(1), row(1, "PENDING", restarts=1), row(1, "FAILED"), ""]
    )
    def test_any_other_absence_is_just_that(self, case: Case, before: str) -> None:
        case.slurm.rows = [row(0), *([before] if before else [])]
        scheduler = case.scheduler()
        scheduler.tasks(["44"])
        case.slurm.rows = [row(0)]
        assert [task.index for task in scheduler.tasks(["44"])] == [0]

    def test_an_array_that_slurm_has_lost_was_not_cancelled(self, case: Case) -> None:
        case.slurm.rows = [row(0, "PENDING", nodes=""), row(1, "PENDING", nodes="")]
        scheduler = case.scheduler()
        scheduler.tasks(["44"])
        case.slurm.rows = []
        assert scheduler.tasks(["44"]) == ()


class TestOrders:
    def test_a_requeue_that_was_overtaken(self, case: Case) -> None:
        case.slurm.rows = [row(0, "FAILED")]
        case.slurm.answers["scontrol requeue 44_0"] = (1, "44_0: Job is pending execution")
        case.scheduler().requeue("44_0")

    def test_a_requeue_that_slurm_refuses(self, case: Case) -> None:
        case.slurm.rows = [row(0, "FAILED")]
        case.slurm.answers["scontrol requeue 44_0"] = (1, "Access/permission denied")
        with pytest.raises(SchedulerError, match="Slurm says 'Access/permission denied'"):
            case.scheduler().requeue("44_0")

    def test_orders_wait_for_the_end_of_a_run_and_then_ask_again_later(self, case: Case) -> None:
        case.slurm.rows = [row(0, "COMPLETING")]
        for verb in (case.scheduler().requeue, case.scheduler().release):
            with pytest.raises(SchedulerUnavailable, match="still ending"):
                verb("44_0")
        assert case.slurm.count("scontrol") == 0

    def test_a_task_may_start_a_second_after_its_requeue(self, case: Case) -> None:
        """Otherwise slurmd takes its credential for the one it has just revoked."""
        case.slurm.answers["scontrol update"] = (0, "")
        # In the future, as a requeue of just now is for a clock that is behind Slurm's.
        case.slurm.rows = [
            row(
                0,
                "PENDING",
                reason="BeginTime",
                restarts=1,
                submit="2126-11-29T16:25:14",
                start="2126-11-29T16:27:15",
                nodes="",
            )
        ]
        case.scheduler().release("44_0")
        assert case.slurm.calls[-1] == (
            "scontrol",
            "update",
            "jobid=44_0",
            "StartTime=2126-11-29T16:25:15",
        )
        case.slurm.rows = [
            row(0, "PENDING", reason="BeginTime", restarts=1, start="2126-11-29T16:27:15", nodes="")
        ]
        case.scheduler().release("44_0")
        assert case.slurm.calls[-1] == ("scontrol", "update", "jobid=44_0", "StartTime=now")

    def test_a_task_that_waits_for_nodes_keeps_its_place_in_the_queue(self, case: Case) -> None:
        case.slurm.rows = [row(0, "PENDING", reason="Resources", nodes="")]
        case.scheduler().release("44_0")
        assert case.slurm.count("scontrol") == 0

    def test_a_hold_that_only_an_administrator_lifts(self, case: Case) -> None:
        case.slurm.rows = [row(0, "PENDING", reason="JobHeldAdmin", nodes="")]
        case.slurm.answers["scontrol release"] = (1, "Access/permission denied")
        with pytest.raises(SchedulerError, match="denied"):
            case.scheduler().release("44_0")

    def test_a_cancel_that_was_overtaken(self, case: Case) -> None:
        case.slurm.rows = [row(0), row(1)]
        case.slurm.answers["scancel 44_0 44_1"] = (
            1,
            "scancel: error: Kill job error on job id 44_0: Invalid job id specified\n"
            "scancel: error: Kill job error on job id 44_1: "
            "Job/step already completing or completed",
        )
        case.scheduler().cancel(["44_0", "44_1", "nonsense", ""])
        case.slurm.answers["scancel 44_0 44_1"] = (1, "scancel: error: Access/permission denied")
        with pytest.raises(SchedulerError, match="denied"):
            case.scheduler().cancel(["44_0", "44_1"])

    def test_a_notice_is_for_the_step_of_what_runs(self, case: Case) -> None:
        case.slurm.rows = [row(0), row(1, "PENDING", nodes=""), row(0, array=46, name="other")]
        case.slurm.answers["scancel --signal=USR1 44_0.0"] = (0, "")
        case.scheduler().notify(["44_0", "44_1", "46_0", "nonsense"], signal.SIGUSR1)
        assert case.slurm.calls[-1] == ("scancel", "--signal=USR1", "44_0.0")
        case.slurm.calls.clear()
        case.scheduler().notify(["44_1"], signal.SIGUSR1)
        assert case.slurm.count("scancel") == 0

    def test_a_notice_that_was_overtaken_or_refused(self, case: Case) -> None:
        case.slurm.rows = [row(0)]
        answer = "scancel: error: Kill job error on job id 44_0.0: Job/step already completing"
        case.slurm.answers["scancel --signal=TERM"] = (1, f"{answer} or completed")
        case.scheduler().notify(["44_0"], signal.SIGTERM)
        case.slurm.answers["scancel --signal=TERM"] = (1, "scancel: error: Access denied")
        with pytest.raises(SchedulerError, match=r"44_0.0 did not get SIGTERM: .*Access denied"):
            case.scheduler().notify(["44_0"], signal.SIGTERM)

    def test_a_second_array_that_can_not_be_cancelled_spoils_no_look(self, case: Case) -> None:
        case.slurm.rows = [row(0), row(0, array=45)]
        case.slurm.answers["scancel 45"] = (1, "Socket timed out on send/recv operation")
        assert [task.id for task in case.scheduler().tasks(["44"])] == ["44_0"]
        assert case.slurm.count("scancel") == 1


class TestServiceNode:
    def test_within_a_job(self, case: Case) -> None:
        scheduler = case.scheduler(SLURMD_NODENAME="n1")
        assert scheduler.service_node() == Node("n1", "10.0.0.11")

    def test_as_the_user_says(self, case: Case) -> None:
        scheduler = SlurmScheduler(
            case.directory,
            SlurmOptions(),
            service_address="10.9.9.9",
            environment={"SLURMD_NODENAME": "n1"},
            runner=case.slurm,
        )
        assert scheduler.service_node() == Node("n1", "10.9.9.9")
        assert case.slurm.calls == []

    def test_on_a_machine_outside_the_cluster(
        self, case: Case, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        case.slurm.answers = {
            "scontrol --oneliner show node login": (1, "Node login not found"),
            "scontrol --oneliner show node": (0, node("n0", "10.0.0.10")),
        }
        known = {"login.example": "10.1.1.1"}
        monkeypatch.setattr(socket, "gethostname", lambda: "login.example")
        monkeypatch.setattr(socket, "gethostbyname", known.__getitem__)
        assert case.scheduler().service_node() == Node("login", "10.1.1.1")
        known["login.example"] = "127.0.1.1"
        with pytest.raises(SchedulerError, match=r"127\.0\.1\.1 only.*PATHWAYS_SERVICE_ADDRESS"):
            case.scheduler().service_node()
        # A whole cluster on one machine.
        case.slurm.answers["scontrol --oneliner show node"] = (0, node("n0", "127.7.1.1"))
        assert case.scheduler().service_node() == Node("login", "127.0.1.1")

        def fail(name: str) -> str:
            raise socket.gaierror(-2, f"Name {name} not known")

        monkeypatch.setattr(socket, "gethostbyname", fail)
        with pytest.raises(SchedulerError, match="set PATHWAYS_SERVICE_ADDRESS"):
            case.scheduler().service_node()


class TestConstraint:
    def test_by_the_default_partitions_features(self, case: Case) -> None:
        nodes = [
            f"{node(f'n{s}{h}', '10.0.0.1')} AvailableFeatures=s{s}" for s in (0, 1) for h in (0, 1)
        ]
        nodes.append("NodeName=cpu0 NodeAddr=10.0.0.9 AvailableFeatures=s0 Partitions=cpu")
        case.slurm.answers = {
            "scontrol --oneliner show partition": (
                0,
                "PartitionName=cpu Default=NO\nPartitionName=tpu Default=YES\n",
            ),
            "scontrol --oneliner show node": (0, "\n".join(nodes)),
            "scontrol show topology": (1, "scontrol: error: No topology information available"),
        }
        scheduler = SlurmScheduler(
            case.directory / "other",
            SlurmOptions(slice_features="s*"),
            environment={"PATH": case.path},
            runner=case.slurm,
        )
        spec = ArraySpec("run-9", (0,), 2, ("/bin/true",), log_dir=case.directory / "logs")
        scheduler.submit(spec)
        (argv,) = [call for call in case.slurm.calls if call[0] == "sbatch"]
        assert "--constraint=[s0|s1]" in argv

    def test_a_topology_that_can_not_be_seen_is_not_one_that_is_not_there(self, case: Case) -> None:
        case.slurm.answers = {
            "scontrol --oneliner show partition": (0, "PartitionName=tpu Default=YES\n"),
            "scontrol --oneliner show node": (0, node("n0", "10.0.0.1")),
            "scontrol show topology": (1, "Socket timed out on send/recv operation"),
        }
        spec = ArraySpec("run-9", (0,), 2, ("/bin/true",), log_dir=case.directory / "logs")
        with pytest.raises(SchedulerUnavailable):
            case.scheduler().submit(spec)
        assert case.slurm.count("sbatch") == 0
