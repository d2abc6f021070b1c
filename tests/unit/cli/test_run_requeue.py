# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""``run --requeues`` in a job of a Slurm that consists of two scripts, and ``--check-jax``."""

import os
import signal
from importlib.metadata import version
from pathlib import Path

import pytest
from tests.unit.cli.waiting import Case

JOB = "44"
PREEMPTED = "2026-01-01T00:01:00"
UP = "echo up >>$D/up; while :; do sleep 0.05; done"


class Slurm:
    """What a job sees of it: one row of squeue, and a scontrol that notes what it is told."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._bin = case.directory / "bin"
        self._bin.mkdir()
        case.environ = {
            "PATH": f"{self._bin}{os.pathsep}{os.environ['PATH']}",
            "SLURM_JOB_ID": JOB,
        }
        self._script("scontrol", 'echo "$@" >>$D/orders'.replace("$D", str(case.directory)))
        self.show()

    def show(self, state: str = "RUNNING", restarts: int = 0, preempted: str = "N/A") -> None:
        times = f"2026-01-01T00:00:00|2026-01-01T00:00:30|N/A|{preempted}"
        row = f"{JOB}|{JOB}|N/A|{state}|None|{restarts}|0|{times}|cpu0||jax|"
        self._script("squeue", f"echo '{row}'")

    def orders(self) -> list[str]:
        return self._case.lines("orders")

    def _script(self, name: str, body: str) -> None:
        path = Path(self._bin / name)
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)


@pytest.fixture
def slurm(case: Case) -> Slurm:
    return Slurm(case)


@pytest.mark.parametrize("catches", [False, True])
def test_a_job_that_is_told_to_end_is_requeued(case: Case, slurm: Slurm, catches: bool) -> None:
    trap = "trap 'exit 0' USR1; " if catches else ""
    process = case.start("--requeues", "5", "--restarts", "5", script=trap + UP)
    case.until(lambda: case.lines("up"), "the command runs")
    process.send_signal(signal.SIGUSR1)
    _, err = process.communicate(timeout=60)
    assert process.returncode == (0 if catches else 128 + signal.SIGUSR1)
    assert slurm.orders() == [f"requeue {JOB}"]
    assert f"job {JOB} was told that it must end; requeued, 1 of 5" in err
    assert case.lines("up") == ["up"]


def test_a_signal_that_comes_while_the_service_is_awaited_counts(case: Case, slurm: Slurm) -> None:
    case.withdraw()
    process = case.start("--requeues", "5", script=UP)
    assert process.stderr is not None
    assert "waiting for the service" in process.stderr.readline()
    process.send_signal(signal.SIGUSR1)
    assert process.wait(60) == 128 + signal.SIGUSR1
    assert slurm.orders() == [f"requeue {JOB}"]
    assert case.lines("up") == []


def test_a_command_that_fails_while_its_job_is_preempted_is_requeued(
    case: Case, slurm: Slurm
) -> None:
    slurm.show(preempted=PREEMPTED)
    code, out, _ = case.ended("--requeues", "5", "--restarts", "3", script="echo run; exit 3")
    assert (code, out) == (3, ["run"])
    assert slurm.orders() == [f"requeue {JOB}"]


def test_a_cancelled_job_stays_so(case: Case, slurm: Slurm) -> None:
    process = case.start("--requeues", "5", script=UP)
    case.until(lambda: case.lines("up"), "the command runs")
    slurm.show("CANCELLED")
    process.terminate()
    assert process.wait(60) == 128 + signal.SIGTERM
    assert slurm.orders() == []


@pytest.mark.parametrize("code", [0, 3])
def test_a_command_that_ends_by_itself_is_not_requeued(case: Case, slurm: Slurm, code: int) -> None:
    assert case.ended("--requeues", "5", script=f"exit {code}")[0] == code
    assert slurm.orders() == []


def test_requeues_have_a_limit_which_is_said(case: Case, slurm: Slurm) -> None:
    slurm.show(restarts=5, preempted=PREEMPTED)
    _, _, err = case.ended("--requeues", "5", script="exit 3")
    assert slurm.orders() == []
    assert f"job {JOB} is preempted; it has been requeued 5 times, the limit" in err[-1]


def test_a_command_that_merely_fails_in_a_job_is_restarted(case: Case, slurm: Slurm) -> None:
    script = "echo run; [ ${PATHWAYS_RESTART_COUNT-0} = 1 ] || exit 3"
    code, out, _ = case.ended("--requeues", "5", "--restarts", "3", script=script)
    assert (code, out) == (0, ["run", "run"])
    assert slurm.orders() == []


def test_outside_of_slurm_nobody_is_asked(case: Case, slurm: Slurm) -> None:
    case.environ.pop("SLURM_JOB_ID")
    process = case.start("--requeues", "5", script=UP)
    case.until(lambda: case.lines("up"), "the command runs")
    process.send_signal(signal.SIGUSR1)
    assert process.wait(60) == 128 + signal.SIGUSR1
    assert slurm.orders() == []


def test_a_command_is_not_started_with_another_jax(case: Case) -> None:
    case.publish(jax_version="0.0.1")
    code, out, err = case.ended("--check-jax", "--restarts", "3", script="echo run")
    assert (code, out) == (2, [])
    assert "the service speaks JAX 0.0.1" in err[-1]
    assert f"has JAX {version('jaxlib')}" in err[-1]


@pytest.mark.parametrize("known", [None, version("jaxlib"), f"{version('jaxlib')}.1"])
def test_a_command_is_started_with_the_same_release_of_jax_or_if_none_is_known(
    case: Case, known: str | None
) -> None:
    case.publish(jax_version=known)
    assert case.ended("--check-jax", script="echo run")[:2] == (0, ["run"])
