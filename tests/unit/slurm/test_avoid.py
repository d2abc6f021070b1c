# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""slurm_avoid.py: which nodes a pending task is kept off, and when it is not."""

from pathlib import Path

import pytest
from tests.unit.slurm.support import FakeSlurm, programs

from pathways_slurm.scheduler.base import ArraySpec, SchedulerError, SchedulerUnavailable
from pathways_slurm.scheduler.slurm_avoid import Avoidance, places
from pathways_slurm.scheduler.slurm_command import SlurmClient
from pathways_slurm.scheduler.slurm_nodes import NodeDirectory
from pathways_slurm.scheduler.slurm_options import SlurmOptions, sbatch_argv

UPDATE = "scontrol update jobid=44_1"


class Case:
    """Three slices of two nodes, n0 to n5, and a pending task."""

    def __init__(self, directory: Path, *extra_args: str) -> None:
        self.slurm = FakeSlurm()
        self.down: set[str] = set()
        client = SlurmClient(0.5, {"PATH": programs(directory / "bin")}, self.slurm)
        islands = tuple(frozenset({f"n{i}", f"n{i + 1}"}) for i in (0, 2, 4))
        self.avoidance = Avoidance(client, NodeDirectory(client), extra_args, lambda: islands)
        self.excludes("(null)")
        self.slurm.answers[UPDATE] = (0, "")

    def excludes(self, listed: str) -> None:
        words = f"JobId=45 Partition=tpu,low NumNodes=2-2 ExcNodeList={listed} Comment=a b"
        nodes = [
            f"NodeName=n{i} Partitions=tpu State={'DOWN' if f'n{i}' in self.down else 'IDLE'}"
            for i in range(6)
        ]
        self.slurm.answers |= {
            "scontrol --oneliner show job 44_1": (0, words),
            "scontrol --oneliner show node": (0, "\n".join([*nodes, "NodeName=c Partitions=cpu"])),
            "scontrol show hostnames n[0-1]": (0, "n0\nn1\n"),
        }

    def orders(self) -> list[str]:
        return [" ".join(c) for c in self.slurm.calls if c[:2] == ("scontrol", "update")]


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


def test_the_tasks_list_of_excluded_nodes_is_set_and_lifted(case: Case) -> None:
    assert case.avoidance.apply("44_1", ["n1", "n0", "gone"], 2) == ""
    case.excludes("n[0-1]")
    assert case.avoidance.apply("44_1", ["n0", "n1"], 2) == ""
    assert case.avoidance.apply("44_1", [], 2) == ""
    assert case.orders() == [f"{UPDATE} ExcNodeList=n0,n1", f"{UPDATE} ExcNodeList="]


def test_what_the_user_excludes_stays_so(tmp_path: Path) -> None:
    case = Case(tmp_path, "--nice=1", "--exclude=n[0-1]")
    case.excludes("n[0-1]")
    assert case.avoidance.apply("44_1", [], 1) == ""
    assert case.avoidance.apply("44_1", ["n3"], 1) == ""
    assert case.orders() == [f"{UPDATE} ExcNodeList=n0,n1,n3"]


def test_nothing_is_excluded_if_too_few_nodes_are_left(case: Case) -> None:
    why = "without n1 only 2 slices of 2 hosts would find nodes, and the service has 3"
    assert case.avoidance.apply("44_1", ["n1"], 3) == why
    case.down = {"n5"}
    case.excludes("(null)")
    assert "only 1 slices" in case.avoidance.apply("44_1", ["n1"], 2)
    assert case.orders() == []
    # To lift what there is needs no place.
    assert case.avoidance.apply("44_1", [], 3) == ""


def test_a_task_that_has_started_meanwhile(case: Case) -> None:
    case.slurm.answers[UPDATE] = (1, "44_1: Job is no longer pending execution")
    with pytest.raises(SchedulerUnavailable, match="not pending any more"):
        case.avoidance.apply("44_1", ["n0"], 1)


def test_a_refusal_is_slurms_own(case: Case) -> None:
    case.slurm.answers[UPDATE] = (1, "Access/permission denied")
    with pytest.raises(SchedulerError, match="keep off n0: Slurm says 'Access/permission denied'"):
        case.avoidance.apply("44_1", ["n0"], 1)


def test_places_for_slices() -> None:
    islands = [frozenset({"a", "b"}), frozenset({"c", "d"}), frozenset({"x", "y", "z"})]
    assert places(2, ["a", "b", "c", "x", "y", "z"], islands) == 1
    assert places(2, ["a", "b", "c", "d", "e"], ()) == 2
    assert places(1, ["a", "c"], islands) == 2
    assert places(3, [], islands) == 0


def test_a_new_array_keeps_off_them_from_the_start() -> None:
    spec = ArraySpec("run-0", (0,), 1, ("/bin/true",), avoid=("n3", "n2"))

    def excludes(*extra_args: str) -> list[str]:
        argv = sbatch_argv(spec, SlurmOptions(extra_args=extra_args), "", Path("/script"))
        return [word for word in argv if word.startswith("--exclude")]

    assert excludes() == ["--exclude=n2,n3"]
    assert excludes("--exclude=x", "--nice=1", "--exclude=n[0-1]") == ["--exclude=n[0-1],n2,n3"]
