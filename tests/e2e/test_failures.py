# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What programs see of a service whose processes are killed or stopped while they compute."""

import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.service import ServiceUnderTest, wait_until
from tests.e2e.training import PACED, PATIENCE_S, SMALL, STEPS, Training
from tests.emulator.proxy.harness import LineProcess

from pathways_slurm import cluster_env, notices
from pathways_slurm.runtime_files import Report

# From the word that a slice is lost to the error in the program that waits for its data.
AT_ONCE_S = 0.5
SILENCE_S = 2.0
NOTICE_S = 8.0


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceUnderTest]:
    """A service of two slices that the tests share: each leaves it as it found it."""
    yield from _started(
        tmp_path_factory.mktemp("shared"), PATHWAYS_HEARTBEAT_TIMEOUT_S=f"{SILENCE_S:g}"
    )


@pytest.fixture
def service(shared: ServiceUnderTest) -> ServiceUnderTest:
    """The shared service with both slices."""
    for index in range(2):
        shared.wait_for_slice(index, "READY", timeout_s=PATIENCE_S)
    return shared


@pytest.fixture(scope="module")
def forwarding(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceUnderTest]:
    """One that leaves it to programs to save what is on a slice that goes."""
    yield from _started(
        tmp_path_factory.mktemp("forwarding"),
        PATHWAYS_ON_NOTICE="forward",
        PATHWAYS_NOTICE_S=f"{NOTICE_S:g}",
    )


def _started(directory: Path, **settings: str) -> Iterator[ServiceUnderTest]:
    service = ServiceUnderTest(directory / "home", MIN_SLICES="1", MAX_SLICES="2", **settings)
    try:
        service.up()
        yield service
    finally:
        service.close()


class Program(LineProcess):
    """A program of the service that answers by lines."""

    def __init__(self, service: ServiceUnderTest, module: str, *arguments: str) -> None:
        found = cluster_env.read(service.cluster_env)
        variables = {"PATHWAYS_CLUSTER_ENV": str(service.cluster_env), **found.variables()}
        super().__init__(
            [sys.executable, "-m", module, *arguments],
            {**service.environ, **variables},
            service.home / f"{module}.log",
        )

    def asked(self, words: str) -> str:
        """What it answers when it is told to do something."""
        self.say(words)
        return self.hear(PATIENCE_S)


class Counting(Program):
    """``counting.py``, of which each step is heard once and none is missing.

    Attributes:
        step: The last that was heard.
        said: How many lines it has said, heard or not.
    """

    def __init__(self, service: ServiceUnderTest, what_it_does_about_notices: str) -> None:
        self.step = 0
        self.said = 0
        super().__init__(service, "tests.e2e.counting", what_it_does_about_notices)

    def heard(self, line: str) -> None:
        self.said += 1
        super().heard(line)

    def hear_step(self) -> str:
        """Hears the next step, and on which slices it was; or what else there is to hear."""
        line = self.hear(PATIENCE_S)
        match = re.fullmatch(r"step (\d+) slices ([\d,]+)", line)
        if match is None:
            return line
        assert int(match[1]) == self.step + 1, line
        self.step += 1
        return match[2]

    def hear_steps_until(self, slices: str) -> None:
        """Hears nothing but steps, until there is one on these slices."""
        while (heard := self.hear_step()) != slices:
            assert re.fullmatch(r"[\d,]+", heard), heard

    def finish(self, timeout_s: float = PATIENCE_S) -> None:
        """Has it end, and waits for that."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        super().finish(timeout_s)


def _client(service: ServiceUnderTest) -> Program:
    program = Program(service, "tests.emulator.proxy.clients.pause")
    program.expect("ready", PATIENCE_S)
    return program


def _alive(service: ServiceUnderTest, index: int) -> bool:
    report = Report.read(service.home / "state" / "report.json")
    return report is not None and report.slices[index].alive


def _incarnation(service: ServiceUnderTest, index: int) -> int:
    return int(service.status()["slices"][index]["incarnation"])


def _worker(service: ServiceUnderTest, index: int) -> int:
    return service.worker_on(f"{service.network}.{1 + index}.1")


def _wait_until_restarted(service: ServiceUnderTest, component: str, old_pid: int) -> None:
    def restarted() -> bool:
        status = service.status()[component]
        return bool(status["state"] == "UP" and status["pid"] != old_pid)

    wait_until(restarted, 60.0, f"{component} is started again: {service.logs()}")


@pytest.mark.timeout(900)
def test_whoever_waits_for_a_slice_fails_as_soon_as_its_loss_is_found(
    service: ServiceUnderTest,
) -> None:
    with _client(service) as client:
        for number, why in (
            (signal.SIGKILL, "ended: connection closed"),
            (signal.SIGSTOP, f"lost: silent for more than {SILENCE_S:g} s"),
        ):
            took: list[float] = []
            # The time includes what the system's scheduler takes on a loaded machine: the best
            # counts.
            while len(took) < 3 and min(took, default=AT_ONCE_S) >= AT_ONCE_S:
                took.append(_lose_while_it_computes(service, client, number, why))
            assert min(took) < AT_ONCE_S, took


def _lose_while_it_computes(
    service: ServiceUnderTest, client: Program, number: signal.Signals, why: str
) -> float:
    """Seconds from the word that slice 1 is lost to the client's error."""
    incarnation = _incarnation(service, 1)
    assert client.asked("make") == "ok"
    assert client.asked("spin 6") == "ok"
    signalled_at = time.monotonic()
    os.kill(_worker(service, 1), number)
    wait_until(lambda: not _alive(service, 1), 30.0, "the loss is found", 0.002)
    found_at = time.monotonic()
    assert client.hear().startswith(f"error DATA_LOSS: slice 1: host 0 {why}")
    took = time.monotonic() - found_at
    if number == signal.SIGSTOP:
        # Its last heartbeat may have been sent a fifth of the timeout before.
        assert found_at - signalled_at > 0.75 * SILENCE_S
    assert client.asked("use 0") == "ok"
    # The slice comes back, and the same program goes on with it.
    service.wait_for_slice(1, "READY", above=incarnation)
    assert client.asked("fresh") == "ok"
    return took


@pytest.mark.timeout(900)
def test_a_program_does_not_notice_that_the_resource_manager_was_killed(
    service: ServiceUnderTest,
) -> None:
    before = service.status()
    with Counting(service, "ignore") as program:
        program.hear_steps_until("0,1")
        os.kill(before["rm"]["pid"], signal.SIGKILL)
        _wait_until_restarted(service, "rm", before["rm"]["pid"])
        wait_until(
            lambda: all(_alive(service, index) for index in range(2)), 60.0, "membership is back"
        )
        said = program.said
        while program.step < said + 5:
            assert program.hear_step() == "0,1"
        # The new resource manager acts as the old one did.
        os.kill(_worker(service, 1), signal.SIGKILL)
        while (heard := program.hear_step()) == "0,1":
            pass
        assert heard.startswith("error DATA_LOSS: slice 1: host 0 ended")
    after = service.wait_for_slice(1, "READY", above=before["slices"][1]["incarnation"])
    assert after["incarnation"] == before["slices"][1]["incarnation"] + 1
    assert service.status()["slices"][0]["hosts"] == before["slices"][0]["hosts"]


@pytest.mark.timeout(900)
def test_a_killed_proxy_is_unavailable_at_once_and_serves_again_at_its_address(
    service: ServiceUnderTest,
) -> None:
    before = service.status()
    address = cluster_env.read(service.cluster_env).proxy_address
    with _client(service) as client:
        assert client.asked("make") == "ok"
        assert client.asked("spin 60") == "ok"
        os.kill(before["proxy"]["pid"], signal.SIGKILL)
        # Far below the 60 s of the computation, and below any timeout of a connection.
        assert client.hear(10.0).startswith("error UNAVAILABLE")
    _wait_until_restarted(service, "proxy", before["proxy"]["pid"])
    wait_until(service.cluster_env.exists, 60.0, "the address is published again")
    assert cluster_env.read(service.cluster_env).proxy_address == address
    with _client(service) as client:
        for words in ("make", "use", "fresh"):
            assert client.asked(words) == "ok"
    after = service.wait_for("READY")
    assert [item["hosts"] for item in after["slices"]] == [i["hosts"] for i in before["slices"]]


@pytest.mark.timeout(900)
def test_a_program_that_does_not_survive_the_service_is_run_again_from_its_checkpoint(
    service: ServiceUnderTest,
) -> None:
    # So far apart that steps are likely to be taken again.
    options = (*SMALL, *PACED, "--checkpoint-period", "10")
    training = Training(service, *options, run_options=("--restarts", "1"))
    training.wait_for_step(15)
    assert service.run("down").returncode == 0
    service.up()
    output = training.expect_success()
    said = re.findall(r"^pathways-slurm: (.*)$", output, re.MULTILINE)
    assert said == ["restart 1 of 1: command exited with 1"]
    events = training.events
    (restored,) = (e["step"] for e in events if e["event"] == "restore")
    at = next(n for n, e in enumerate(events) if e["event"] == "restore")
    first = {e["step"]: e["loss"] for e in events[:at] if e["event"] == "step"}
    second = {e["step"]: e["loss"] for e in events[at:] if e["event"] == "step"}
    assert list(first) == list(range(1, 1 + len(first)))
    assert restored > 0
    assert restored % 10 == 0
    assert list(second) == list(range(1 + restored, 1 + STEPS))
    again = first.keys() & second.keys()
    assert {step: first[step] for step in again} == {step: second[step] for step in again}


@pytest.mark.timeout(900)
def test_a_program_that_leaves_a_slice_before_it_goes_loses_no_step(
    forwarding: ServiceUnderTest,
) -> None:
    incarnation = forwarding.wait_for_slice(1, "READY")["incarnation"]
    with Counting(forwarding, "watch") as program:
        program.hear_steps_until("0,1")
        os.kill(_worker(forwarding, 1), signal.SIGTERM)
        while (heard := program.hear_step()) == "0,1":
            pass
        assert heard == "left 1"
        program.hear_steps_until("0")
        # It returns, which the program learns as it learned that it goes.
        forwarding.wait_for_slice(1, "READY", above=incarnation)
        program.hear_steps_until("0,1")
        program.finish()
    gone = [e["message"] for e in forwarding.events() if e["reason"] == "SliceGone"][-1]
    # Otherwise it would be: the 8 s since SIGTERM have passed.
    assert "its programs have left it" in gone


@pytest.mark.timeout(900)
def test_a_slice_whose_program_does_not_answer_is_used_until_its_deadline(
    forwarding: ServiceUnderTest,
) -> None:
    incarnation = forwarding.wait_for_slice(1, "READY")["incarnation"]
    file = forwarding.home / notices.FILE
    with Counting(forwarding, "ignore") as program:
        program.hear_steps_until("0,1")
        os.kill(_worker(forwarding, 1), signal.SIGTERM)
        signalled_at = time.monotonic()
        wait_until(lambda: notices.read(file).going, 30.0, f"announced: {forwarding.logs()}", 0.01)
        while (heard := program.hear_step()) == "0,1":
            last_step_at = time.monotonic()
        assert heard.startswith(f"error DATA_LOSS: slice 1: host 0 left: the {NOTICE_S:g} s since")
        assert time.monotonic() - signalled_at > NOTICE_S
        assert last_step_at - signalled_at > NOTICE_S / 2
    forwarding.wait_for_slice(1, "READY", above=incarnation)
