# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""slurm_power.py: which nodes are powered down, how, and by whose rights."""

import logging
from pathlib import Path

import pytest
from tests.unit.slurm.support import FakeSlurm, programs

from pathways_slurm.scheduler.base import Power, SchedulerUnavailable
from pathways_slurm.scheduler.slurm_command import SlurmClient
from pathways_slurm.scheduler.slurm_nodes import NodeDirectory
from pathways_slurm.scheduler.slurm_power import NodePower, order_for, power_of

DENIED = "slurm_update error: Invalid user id"
NOBODY = frozenset[str]()


def words(state: str) -> frozenset[str]:
    return frozenset(state.split("+"))


@pytest.mark.parametrize(
    ("state", "hangs", "order"),
    [
        ("IDLE", False, "power_down_asap"),
        ("IDLE+COMPLETING", True, "power_down_asap"),
        ("IDLE+CLOUD+NOT_RESPONDING", False, "power_down_asap"),
        # Asked for before, and our own run does not end.
        ("IDLE+COMPLETING+DRAIN+POWER_DOWN+NOT_RESPONDING", True, "power_down_force"),
        # What ends there is somebody else's.
        ("IDLE+COMPLETING+DRAIN+POWER_DOWN", False, ""),
        ("ALLOCATED+DRAIN+POWER_DOWN", True, ""),
        ("IDLE+POWERING_DOWN", True, ""),
        ("IDLE+POWERED_DOWN", False, ""),
    ],
)
def test_what_is_asked_of_a_node(state: str, hangs: bool, order: str) -> None:
    assert order_for(words(state), hangs) == (order, "")


@pytest.mark.parametrize(
    ("state", "why"),
    [
        ("ALLOCATED", "a job runs on it"),
        ("MIXED+COMPLETING", "a job runs on it"),
        ("IDLE+DRAIN", "an administrator has drained it"),
        ("IDLE+MAINT+RESERVED", "an administrator has drained it"),
        ("DOWN+NOT_RESPONDING", "Slurm has it down already"),
        ("DOWN+DRAIN", "Slurm has it down already"),
    ],
)
def test_nodes_that_are_left_alone(state: str, why: str) -> None:
    assert order_for(words(state), hangs=True) == ("", why)


@pytest.mark.parametrize(
    ("state", "power"),
    [
        ("IDLE", Power.ON),
        ("ALLOCATED+COMPLETING", Power.ON),
        ("IDLE+COMPLETING+DRAIN+POWER_DOWN", Power.GOING_DOWN),
        ("IDLE+POWERING_DOWN", Power.GOING_DOWN),
        ("IDLE+POWERED_DOWN", Power.OFF),
        ("ALLOCATED+POWERED_DOWN", Power.COMING_UP),
        ("ALLOCATED+NOT_RESPONDING+POWERING_UP", Power.COMING_UP),
        ("IDLE+NOT_RESPONDING", Power.FAILED),
        ("DOWN+POWERED_DOWN", Power.FAILED),
        ("DOWN+POWERING_DOWN", Power.FAILED),
    ],
)
def test_whether_a_node_is_there(state: str, power: Power) -> None:
    assert power_of(words(state)) is power


class Case:
    """A cluster that powers nodes down, and a user without rights until a test gives some."""

    def __init__(self, directory: Path, sudo: bool = True) -> None:
        self.slurm = FakeSlurm()
        path = programs(directory / "bin")
        self.scontrol = f"{path}/scontrol"
        if sudo:
            (directory / "bin" / "sudo").write_text("#!/bin/false\n")
            (directory / "bin" / "sudo").chmod(0o755)
        client = SlurmClient(0.5, {"PATH": path}, self.slurm)
        self.slurm.answers = {
            "scontrol show config": (0, "SuspendProgram          = /opt/suspend\n"),
            "scontrol --oneliner show node": (0, ""),
            "scontrol update": (1, DENIED),
            "sudo -n -l": (1, "sudo: a password is required"),
        }
        self.show("n0", "n1")
        self.power = NodePower(client, NodeDirectory(client))

    def show(self, *names: str, state: str = "IDLE") -> None:
        lines = [f"NodeName={name} State={state}" for name in names]
        self.slurm.answers["scontrol --oneliner show node"] = (0, "\n".join(lines))

    def allow(self) -> None:
        """By a rule for sudo."""
        start = f"{self.scontrol} update"
        self.slurm.answers |= {f"sudo -n -l {start}": (0, ""), f"sudo -n {start}": (0, "")}
        self.slurm.answers.pop("sudo -n -l")

    def asked(self, start: str) -> list[str]:
        calls = [" ".join(call) for call in self.slurm.calls]
        return [call for call in calls if call.startswith(start)]


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


class TestRights:
    def test_ones_own_take_one_command_and_no_sudo(self, case: Case) -> None:
        case.slurm.answers["scontrol update"] = (0, "")
        assert case.power.down(["n0", "n1"], NOBODY)
        assert case.asked("scontrol update") == [
            "scontrol update nodename=n0,n1 state=power_down_asap"
        ]
        assert case.asked("sudo") == []

    def test_those_of_sudo_take_one_command_a_node_and_one_question(self, case: Case) -> None:
        case.allow()
        for _ in range(2):
            assert case.power.down(["n0", "n1"], NOBODY)
        update = f"{case.scontrol} update nodename={{}} state=power_down_asap"
        assert case.asked("sudo") == [
            f"sudo -n -l {update.format('n0')}",
            *[f"sudo -n {update.format(node)}" for node in ("n0", "n1", "n0", "n1")],
        ]
        # Asked for with one's own rights once.
        assert len(case.asked("scontrol update")) == 1

    def test_what_hangs_is_ended_by_force_if_the_rule_has_it(self, case: Case) -> None:
        case.allow()
        case.show("n0", state="IDLE+COMPLETING+DRAIN+POWER_DOWN")
        assert case.power.down(["n0"], frozenset({"n0"}))
        assert case.asked("sudo -n -l")[-1].endswith("nodename=n0 state=power_down_force")
        assert case.asked("sudo")[-1].endswith("nodename=n0 state=power_down_force")

    def test_none_are_asked_for_once_and_said_once(
        self, case: Case, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        for _ in range(3):
            assert not case.power.down(["n0", "n1"], NOBODY)
        assert len(case.asked("scontrol update")) == 1
        assert len(case.asked("sudo -n -l")) == 1
        assert caplog.messages.count("nodes are not powered down") == 1

    def test_without_sudo(self, tmp_path: Path) -> None:
        case = Case(tmp_path, sudo=False)
        assert not case.power.down(["n0"], NOBODY)
        assert case.asked("sudo") == []

    def test_that_settings_refuse_are_not_tried(self, case: Case) -> None:
        client = SlurmClient(0.5, {}, case.slurm)
        assert not NodePower(client, NodeDirectory(client), enabled=False).down(["n0"], NOBODY)
        assert case.slurm.calls == []

    def test_a_node_beyond_the_rule_stays_on(self, case: Case) -> None:
        case.allow()
        case.show("n0", "cpu0")
        case.slurm.answers = {
            f"sudo -n -l {case.scontrol} update nodename=cpu": (1, "not allowed"),
            **case.slurm.answers,
        }
        assert case.power.down(["n0", "cpu0"], NOBODY)
        assert case.asked(f"sudo -n {case.scontrol}") == [
            f"sudo -n {case.scontrol} update nodename=n0 state=power_down_asap"
        ]


class TestRefusals:
    @pytest.mark.parametrize("name", ["ALL", "all", "n0,n1", "n[0-1]", "n0 state=drain", "", "n.0"])
    def test_a_name_that_is_not_one_nodes_reaches_nobody(self, case: Case, name: str) -> None:
        assert not case.power.down([name], NOBODY)
        assert case.slurm.calls == []

    def test_where_no_node_is_ever_powered_down(self, case: Case) -> None:
        case.slurm.answers["scontrol show config"] = (0, "SuspendProgram = (null)\n")
        for _ in range(2):
            assert not case.power.down(["n0"], NOBODY)
        assert len(case.slurm.calls) == 1

    def test_for_another_reason_leaves_the_rights_open(self, case: Case) -> None:
        case.slurm.answers["scontrol update"] = (1, "slurm_update error: Invalid node state")
        assert not case.power.down(["n0"], NOBODY)
        assert case.asked("sudo") == []
        case.slurm.answers["scontrol update"] = (0, "")
        assert case.power.down(["n0"], NOBODY)

    def test_a_node_with_a_job_is_asked_nothing(self, case: Case) -> None:
        case.show("n0", state="ALLOCATED")
        assert not case.power.down(["n0"], frozenset({"n0"}))
        assert case.asked("scontrol update") == []

    def test_no_answer_decides_nothing(self, case: Case) -> None:
        case.slurm.answers["scontrol update"] = (1, "Socket timed out on send/recv")
        with pytest.raises(SchedulerUnavailable):
            case.power.down(["n0"], NOBODY)
        case.slurm.answers["scontrol update"] = (0, "")
        assert case.power.down(["n0"], NOBODY)


def test_a_look_at_nodes(case: Case) -> None:
    assert case.power.look([]) == {}
    assert case.slurm.calls == []
    case.show("n0", state="IDLE+POWERED_DOWN")
    assert case.power.look(["n0", "n1"]) == {"n0": Power.OFF}
