# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""slurm_parse.py: what Slurm prints, in the forms of 22.05 and of later versions."""

import calendar

import pytest

from pathways_slurm.scheduler.base import Node
from pathways_slurm.scheduler.slurm_ends import HostEnd
from pathways_slurm.scheduler.slurm_parse import (
    SQUEUE,
    NodeInfo,
    Row,
    format_comment,
    format_time,
    islands,
    parse_comment,
    parse_default_partition,
    parse_exit,
    parse_nodes,
    parse_rows,
    parse_switches,
    parse_time,
    task_of,
)
from pathways_slurm.states import TaskState

NODES = (Node("tpu-2-0", "127.0.112.1"), Node("tpu-2-1", "127.0.112.2"))


def noon(clock: str) -> float:
    """Unix time of 2026-11-29 at ``clock``, UTC."""
    hour, minute, second = map(int, clock.split(":"))
    return float(calendar.timegm((2026, 11, 29, hour, minute, second)))


def line(**changes: str) -> str:
    """A line of squeue's answer."""
    fields = {
        "id": "44_3",
        "array": "44",
        "index": "3",
        "state": "RUNNING",
        "reason": "None",
        "restarts": "0",
        "exit": "0",
        "submit": "2026-11-29T16:25:14",
        "start": "2026-11-29T16:25:15",
        "end": "N/A",
        "preempt": "N/A",
        "nodes": "tpu-2-[0-1]",
        "comment": "pathways tag=run-0 first=4",
        "name": "pathways-run-0",
    }
    assert changes.keys() <= fields.keys()
    return "|".join((fields | changes).values()) + "|"


def row(**changes: str) -> Row:
    (found,) = parse_rows(line(**changes) + "\n")
    return found


class TestRows:
    def test_whole_values_of_all_jobs_are_asked_for(self) -> None:
        assert SQUEUE == (
            "squeue",
            "--noheader",
            "--array",
            "--states=all",
            "--me",
            "--Format=JobArrayID:0|,ArrayJobID:0|,ArrayTaskID:0|,State:0|,Reason:0|,RestartCnt:0|,"
            "exit_code:0|,SubmitTime:0|,StartTime:0|,EndTime:0|,PreemptTime:0|,NodeList:0|,"
            "Comment:0|,Name:0|",
        )

    def test_a_running_task(self) -> None:
        assert row() == Row(
            id="44_3",
            array="44",
            index=3,
            state=TaskState.RUNNING,
            reason="",
            restarts=0,
            exit_status="0",
            submitted=noon("16:25:14"),
            started=noon("16:25:15"),
            ended=0.0,
            preempted=0.0,
            nodes="tpu-2-[0-1]",
            comment="pathways tag=run-0 first=4",
            name="pathways-run-0",
        )

    def test_no_jobs(self) -> None:
        assert parse_rows("") == ()

    @pytest.mark.parametrize("array", ["7", "N/A"])
    def test_a_job_that_is_no_array(self, array: str) -> None:
        plain = row(id="7", array=array, index="N/A", nodes="", comment="(null)", name="wrap")
        assert (plain.id, plain.array, plain.index) == ("7", "7", None)
        assert (plain.nodes, plain.comment) == ("", "")

    @pytest.mark.parametrize(
        ("comment", "name"),
        [
            ("a|b|", "pathways-run-0"),
            ("first line\nsecond line", "wrap"),
            ("44_9|44|", "x"),
            ("", "a name\nof two lines"),
        ],
    )
    def test_a_comment_or_a_name_may_hold_anything(self, comment: str, name: str) -> None:
        text = "\n".join([line(id="1", array="1"), line(comment=comment, name=name), line()])
        found = parse_rows(text)
        assert [one.id for one in found] == ["1", "44_3", "44_3"]
        assert (found[1].comment, found[1].name) == (comment, name)
        assert found[2] == row()

    @pytest.mark.parametrize(
        "text",
        [
            "slurm_load_jobs error: Socket timed out on send/recv operation",
            line()[:-20],
            line() + "\n" + line()[:30],
            line(id="44_[2-7%2]", index="2-7%2"),
            line(restarts="many"),
            line(start="yesterday"),
        ],
    )
    def test_anything_else_is_not_believed(self, text: str) -> None:
        with pytest.raises(ValueError, match=r"squeue|invalid literal|does not match"):
            parse_rows(text)


class TestStates:
    @pytest.mark.parametrize(
        "reason",
        [
            "launch failed requeued held",
            "launch_failed_requeued_held",
            "launch failure limit exceeded requeued held",
            "JobHeldUser",
            "JobHeldAdmin",
            "job requeued in held state",
        ],
    )
    def test_held(self, reason: str) -> None:
        held = row(state="PENDING", reason=reason, nodes="")
        assert (held.state, held.reason) == (TaskState.HELD, reason)
        assert not held.waits_to_begin
        # A hold of a task that runs holds its next run.
        assert row(reason=reason).state is TaskState.RUNNING

    @pytest.mark.parametrize("word", ["SPECIAL_EXIT", "REQUEUE_HOLD"])
    def test_held_by_a_word_of_their_own(self, word: str) -> None:
        assert row(state=word).state is TaskState.HELD

    @pytest.mark.parametrize(
        ("reason", "start", "shown"),
        [
            ("BeginTime", "2026-11-29T16:27:15", "BeginTime"),
            # What the last run left behind, until Slurm's scheduler looks at the task.
            ("NonZeroExitCode", "2026-11-29T16:27:15", "BeginTime"),
            ("None", "2026-11-29T16:27:15", "BeginTime"),
            ("None", "N/A", ""),
            ("Resources", "2026-11-29T18:00:00", "Resources"),
            ("Priority", "N/A", "Priority"),
        ],
    )
    def test_pending(self, reason: str, start: str, shown: str) -> None:
        pending = row(state="PENDING", reason=reason, start=start, nodes="")
        assert (pending.state, pending.reason) == (TaskState.PENDING, shown)
        assert pending.waits_to_begin == (shown == "BeginTime")

    def test_a_cancelled_task_no_longer_waits(self) -> None:
        assert row(state="CANCELLED", reason="Resources").reason == ""

    def test_a_word_of_a_later_slurm(self) -> None:
        assert row(state="HIBERNATING").state is TaskState.UNKNOWN


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # 22.05: the raw wait status
        ("0", (0, None)),
        ("768", (3, None)),
        ("9", (None, 9)),
        ("15", (None, 15)),
        ("35072", (None, 9)),
        ("36608", (None, 15)),
        # later
        ("0:0", (0, None)),
        ("3:0", (3, None)),
        ("0:9", (None, 9)),
        ("137:0", (None, 9)),
        # srun says so of signals only
        ("128:0", (128, None)),
        ("255:0", (255, None)),
        ("N/A", (None, None)),
    ],
)
def test_exit_codes(text: str, expected: tuple[int | None, int | None]) -> None:
    assert parse_exit(text) == expected


def test_times() -> None:
    assert parse_time("2026-11-29T16:25:14") == noon("16:25:14")
    assert parse_time("N/A") == parse_time("Unknown") == parse_time("") == 0.0
    assert format_time(noon("16:25:14") + 0.7) == "2026-11-29T16:25:14"


class TestTasks:
    def test_running(self) -> None:
        task = task_of(row(restarts="2"), 3, NODES, 4)
        assert (task.id, task.index, task.state) == ("44_3", 3, TaskState.RUNNING)
        assert (task.restarts, task.incarnation) == (2, 6)
        assert task.nodes == NODES
        assert task.since == noon("16:25:15")
        assert (task.exit_code, task.signal, task.preempted) == (None, None, False)

    def test_pending_since_its_requeue_and_without_the_old_nodes(self) -> None:
        requeued = row(state="PENDING", reason="BeginTime", exit="35072", restarts="1")
        task = task_of(requeued, 3, NODES, 1)
        assert (task.nodes, task.since) == ((), noon("16:25:14"))
        assert (task.exit_code, task.signal) == (None, None)

    @pytest.mark.parametrize("status", ["768", "3:0"])
    def test_failed(self, status: str) -> None:
        failed = row(
            state="FAILED", reason="NonZeroExitCode", exit=status, end="2026-11-29T17:00:00"
        )
        task = task_of(failed, 3, NODES, 1)
        assert (task.exit_code, task.signal, task.since) == (3, None, noon("17:00:00"))
        assert task.reason == "a host exited with code 3"

    def test_who_ended_it_is_known_better(self) -> None:
        failed = row(state="FAILED", reason="NonZeroExitCode", exit="36608")
        task = task_of(failed, 3, NODES, 1, HostEnd(1, None, 9))
        assert (task.exit_code, task.signal) == (None, 9)
        assert task.reason == "host 1 was ended by signal 9"

    def test_slurms_own_reasons_stay(self) -> None:
        assert task_of(row(state="TIMEOUT", reason="TimeLimit"), 3, (), 1).reason == "TimeLimit"
        failed = row(state="FAILED", reason="JobLaunchFailure", exit="4021")
        assert task_of(failed, 3, (), 1).reason == "JobLaunchFailure"

    @pytest.mark.parametrize(
        ("state", "preempted", "expected"),
        [
            # 22.05 does not requeue a script that ends within its grace time.
            ("COMPLETED", "2026-11-29T16:30:00", True),
            ("FAILED", "2026-11-29T16:30:00", True),
            ("COMPLETING", "2026-11-29T16:30:00", True),
            ("PENDING", "2026-11-29T16:30:00", True),
            ("FAILED", "2026-11-29T16:25:15", True),
            # An earlier run's
            ("FAILED", "2026-11-29T16:25:14", False),
            ("COMPLETED", "2026-11-29T16:00:00", False),
            # Its grace time lasts
            ("RUNNING", "2026-11-29T16:30:00", False),
            ("FAILED", "N/A", False),
        ],
    )
    def test_preempted(self, state: str, preempted: str, expected: bool) -> None:
        assert task_of(row(state=state, preempt=preempted), 3, (), 1).preempted is expected


def test_comments() -> None:
    assert parse_comment(format_comment("run-0", 12)) == ("run-0", 12)
    assert parse_comment(f"a site's own; {format_comment('run-0', 12)} and more") == ("run-0", 12)
    for other in ("", "pathways", "pathways tag=run-0", "pathways tag=run-0 first=0"):
        assert parse_comment(other) is None


def test_nodes() -> None:
    text = (
        "NodeName=tpu-0-0 Arch=x86_64 CoresPerSocket=1  AvailableFeatures=tpu,slice0 "
        "ActiveFeatures=tpu,slice0 Gres=tpu:v6e:4 NodeAddr=127.0.111.1 NodeHostName=tpu-0-0 "
        "OS=Linux 6.1 #1 SMP @0  State=IDLE*+COMPLETING Partitions=tpu,tpu-low  "
        "Reason=moved to NodeAddr=10.0.0.1 [root@2026-11-29T16:24:57]\n"
        "NodeName=plain AvailableFeatures=(null) State=DOWN\n"
    )
    assert parse_nodes(text) == (
        NodeInfo(
            "tpu-0-0",
            "127.0.111.1",
            frozenset({"tpu", "slice0"}),
            frozenset({"tpu", "tpu-low"}),
            frozenset({"IDLE", "COMPLETING", "NOT_RESPONDING"}),
        ),
        NodeInfo("plain", "plain", state=frozenset({"DOWN"})),
    )
    assert parse_nodes("Node nope not found\n") == ()


def test_the_default_partition() -> None:
    text = (
        "PartitionName=tpu AllowGroups=ALL Default=NO QoS=N/A\n"
        "PartitionName=cpu AllowGroups=ALL Default=YES QoS=N/A\n"
    )
    assert parse_default_partition(text) == "cpu"
    assert parse_default_partition(text.replace("YES", "NO")) == ""


def test_topology() -> None:
    text = (
        "SwitchName=slice0 Level=0 LinkSpeed=1 Nodes=tpu-0-[0-1]\n"
        "SwitchName=root Level=1 LinkSpeed=1 Nodes=tpu-[0-1]-[0-1] Switches=slice[0-1]\n"
        "SwitchName=empty Level=0 LinkSpeed=1 Nodes=(null)\n"
        "BlockName=b1 BlockIndex=0 Nodes=x[0-1] BlockSize=2\n"
    )
    assert parse_switches(text) == {"slice0": "tpu-0-[0-1]", "root": "tpu-[0-1]-[0-1]"}
    assert parse_switches("No topology information available\n") == {}


def test_islands() -> None:
    a, b, both, c = (frozenset(names) for names in ("ab", "cd", "abcd", "e"))
    assert islands([a, b, c]) == (a, b, c)
    assert islands([a, b, both, c]) == (both, c)
    assert islands([a, a]) == (a,)
    assert islands([]) == ()
