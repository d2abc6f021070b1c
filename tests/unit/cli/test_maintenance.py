# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""``pathways-slurm maintenance``, against a supervisor that the test plays."""

import os
import pwd
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pathways_slurm import maintenance
from pathways_slurm.cli.maintenance import command
from pathways_slurm.maintenance import Request
from pathways_slurm.paths import ServicePaths
from pathways_slurm.service_lock import service_lock
from pathways_slurm.status import StatusFile

COMMAND = str(Path(sys.executable).parent / "pathways-slurm")
TWO = {0: "READY", 1: "READY"}


class Case:
    """A service of two slices, whose supervisor is this process as long as it ``runs``."""

    def __init__(self, home: Path, stack: ExitStack) -> None:
        self.paths = ServicePaths(home)
        self.paths.state.mkdir(parents=True)
        self._stack = stack
        self._supervisor = ExitStack()
        stack.push(self._supervisor)

    def runs(self) -> None:
        self._supervisor.enter_context(service_lock(self.paths.lock))
        self.shows(TWO)

    def ends(self) -> None:
        self._supervisor.close()

    def shows(self, states: dict[int, str]) -> None:
        slices: list[dict[str, Any]] = [
            {
                "index": index,
                "state": state,
                "nodes": [f"node-{index}-0", f"node-{index}-1"] if state == "READY" else [],
                "reason": f"reason of {index}",
            }
            for index, state in states.items()
        ]
        StatusFile(self.paths.status).write(
            {"service": "READY", "reason": "all is well", "slices": slices}
        )

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [COMMAND, "maintenance", *arguments],
            env={**os.environ, "PATHWAYS_HOME": str(self.paths.directory)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._stack.enter_context(process)
        self._stack.callback(process.kill)
        return process

    def ended(self, *arguments: str) -> tuple[int, str, str]:
        process = self.start(*arguments)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    def requests(self) -> dict[int, Request]:
        return dict(maintenance.requests(self.paths.maintenance))


@pytest.fixture
def case(tmp_path: Path) -> Iterator[Case]:
    with ExitStack() as stack:
        yield Case(tmp_path / "home", stack)


def until(look: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + 30
    while not look():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def line_with(process: subprocess.Popen[str], words: str) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if words in line:
            return line
    raise AssertionError(f"no line with {words!r}")


class TestARequest:
    def test_is_made_and_followed_until_the_slice_is_down(self, case: Case) -> None:
        case.runs()
        before = time.time()
        process = case.start("1", "--wait", "10m", "--reason", "new kernel")
        line_with(process, "slice 1 is asked for its nodes, until ")
        line = line_with(process, "slice 1 READY")
        assert line.startswith("slice 1 READY on node-1-0, node-1-1, 10m00s left: reason of 1")
        ((index, request),) = case.requests().items()
        assert (index, request.reason) == (1, "new kernel")
        assert request.deadline - request.requested == pytest.approx(600, abs=0.01)
        assert before <= request.requested <= time.time()
        case.shows({0: "READY", 1: "ENDING"})
        line_with(process, "slice 1 ENDING")
        case.shows({0: "READY", 1: "MAINTENANCE"})
        out, err = process.communicate(timeout=30)
        assert (process.returncode, err) == (0, "")
        assert out.splitlines() == [
            "slice 1 is down; its nodes are free: node-1-0, node-1-1",
            "to bring back what is down: pathways-slurm maintenance --done 1",
        ]
        assert list(case.requests()) == [1]

    def test_of_all_slices(self, case: Case) -> None:
        case.runs()
        process = case.start("--all", "--wait", "90s")
        until(lambda: len(case.requests()) == 2, "both requests")
        case.shows({0: "MAINTENANCE", 1: "READY"})
        line_with(process, "slice 1 READY")
        case.shows({0: "MAINTENANCE", 1: "MAINTENANCE"})
        assert process.wait(30) == 0

    def test_that_is_there_already_stays_and_is_followed(self, case: Case) -> None:
        case.runs()
        there = Request(time.time() + 3000, "new kernel", time.time())
        maintenance.make(case.paths.maintenance, 1, there)
        case.shows({0: "READY", 1: "MAINTENANCE"})
        code, out, _ = case.ended("1", "--wait", "5s")
        assert code == 0
        assert "slice 1 is under maintenance already, until " in out
        # Whole seconds, and the command takes some to start.
        words = r"(50m00s|49m\d\ds) from now \(new kernel\); to change that, withdraw it first"
        assert re.search(words, out)
        assert case.requests() == {1: there}

    def test_replaces_a_broken_one_with_a_warning(self, case: Case) -> None:
        case.runs()
        case.shows({0: "READY", 1: "MAINTENANCE"})
        case.paths.maintenance.mkdir(mode=0o700)
        (case.paths.maintenance / "slice-1.json").write_text("broken")
        code, _, err = case.ended("1")
        assert code == 0
        assert "slice-1.json is ignored, it is no request for maintenance" in err
        assert list(case.requests()) == [1]

    def test_that_is_withdrawn_meanwhile(self, case: Case) -> None:
        case.runs()
        process = case.start("1")
        line_with(process, "slice 1 READY")
        assert maintenance.withdraw(case.paths.maintenance, 1)
        _, err = process.communicate(timeout=30)
        assert process.returncode == 1
        assert "the request for slice 1 was withdrawn meanwhile" in err

    def test_outlives_an_interrupt_which_says_so(self, case: Case) -> None:
        case.runs()
        process = case.start("0", "1")
        line_with(process, "slice 1 READY")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
        assert process.returncode == -signal.SIGINT
        assert "slices 0, 1 will go down and stay down" in err
        assert "To withdraw the request: pathways-slurm maintenance --done 0 1" in err
        assert list(case.requests()) == [0, 1]

    def test_goes_on_while_the_supervisor_is_replaced(self, case: Case) -> None:
        case.runs()
        process = case.start("1")
        line_with(process, "slice 1 READY")
        case.ends()
        case.runs()
        case.shows({0: "READY", 1: "MAINTENANCE"})
        assert process.wait(30) == 0


class TestNothingIsAskedFor:
    def refused(self, case: Case, *arguments: str) -> tuple[int, str]:
        code, _, err = case.ended(*arguments)
        assert not case.paths.maintenance.exists()
        return code, err

    def test_where_no_service_runs(self, case: Case) -> None:
        code, err = self.refused(case, "1")
        assert code == 1
        assert f"no service runs in {case.paths.directory}" in err
        assert "nothing was asked for" in err

    def test_where_a_service_has_ended(self, case: Case) -> None:
        case.runs()
        case.ends()
        code, err = self.refused(case, "--all")
        assert code == 1
        assert "It is UNKNOWN: no supervisor runs" in err

    def test_of_a_slice_that_is_not_there(self, case: Case) -> None:
        case.runs()
        code, err = self.refused(case, "1", "7")
        assert code == 2
        assert "no slice 7 in this service; valid: 0, 1" in err

    @pytest.mark.parametrize(
        ("arguments", "why"),
        [
            ((), "name slices"),
            (("1", "--all"), "name slices"),
            (("-1",), "No such option"),
            (("one",), "is not a valid integer"),
            (("1", "--wait", "soon"), "'soon' is not a duration such as 90s, 5m or 1h30m"),
            (("1", "--reason", "a\nb"), "must be one line of printable text"),
            (("1", "--done", "--wait", "5m"), "--done takes neither --wait nor --reason"),
        ],
    )
    def test_with_wrong_options(self, case: Case, arguments: tuple[str, ...], why: str) -> None:
        case.runs()
        code, err = self.refused(case, *arguments)
        assert code == 2
        assert why in err


class TestDone:
    def test_withdraws_what_is_named(self, case: Case) -> None:
        case.runs()
        for index in (0, 1):
            maintenance.make(case.paths.maintenance, index, Request(2.0, "", 1.0))
        code, out, err = case.ended("--done", "1")
        assert (code, out, err) == (0, "slice 1: maintenance is over; it comes back\n", "")
        assert list(case.requests()) == [0]
        assert case.ended("--done", "1")[:2] == (0, "slice 1: it is not under maintenance\n")

    def test_withdraws_all_also_broken_ones_and_without_a_service(self, case: Case) -> None:
        maintenance.make(case.paths.maintenance, 0, Request(2.0, "", 1.0))
        (case.paths.maintenance / "slice-7.json").write_text("broken")
        code, out, _ = case.ended("--done", "--all")
        assert code == 0
        assert out.splitlines() == [
            "slice 0: maintenance is over; the next service starts it",
            "slice 7: maintenance is over; the next service starts it",
        ]
        assert list(case.paths.maintenance.iterdir()) == []
        assert case.ended("--done", "--all")[:2] == (0, "no slice is under maintenance\n")

    def test_of_a_slice_that_is_not_there(self, case: Case) -> None:
        case.runs()
        code, _, err = case.ended("--done", "4")
        assert code == 2
        assert "no slice 4 in this service; valid: 0, 1" in err


def test_a_service_of_another_user_is_left_alone(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    case.runs()
    owner = case.paths.state.stat().st_uid
    monkeypatch.setenv("PATHWAYS_HOME", str(case.paths.directory))
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    done = CliRunner().invoke(command, ["1"])
    assert done.exit_code == 1
    name = pwd.getpwuid(owner).pw_name
    assert f"who could not read a request of yours; run this as {name}" in done.stderr
    assert not case.paths.maintenance.exists()
