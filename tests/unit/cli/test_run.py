# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""``pathways-slurm run`` with a cluster.env whose proxy is a socket that says a word."""

import os
import signal
import subprocess

import pytest
from tests.unit.cli.waiting import COMMAND, Case

from pathways_slurm.notices import Going, Shutdown


def test_without_the_option_a_command_that_fails_is_not_restarted(case: Case) -> None:
    script = "echo ${PATHWAYS_RESTART_COUNT-unset}; exit 3"
    assert case.ended(script=script) == (3, ["unset"], [])


def test_a_command_that_fails_is_restarted_until_it_does_not(case: Case) -> None:
    script = "echo ${PATHWAYS_RESTART_COUNT-unset}; [ ${PATHWAYS_RESTART_COUNT-0} = 2 ] || exit 7"
    code, out, err = case.ended("--restarts", "3", script=script)
    assert (code, out) == (0, ["unset", "1", "2"])
    assert err == [
        "pathways-slurm: restart 1 of 3: command exited with 7; it failed at once, so this waits "
        "for 1 s",
        "pathways-slurm: restart 2 of 3: command exited with 7; it failed at once, so this waits "
        "for 2 s",
    ]


def test_restarts_have_a_limit_and_the_last_exit_code_is_the_commands(case: Case) -> None:
    code, out, err = case.ended("--restarts", "1", script="echo run; kill -9 $$")
    assert (code, out) == (137, ["run", "run"])
    assert err[0].startswith(
        "pathways-slurm: restart 1 of 1: command was ended by signal 9 (SIGKILL)"
    )
    assert err[1:] == [
        "pathways-slurm: command was ended by signal 9 (SIGKILL); it was restarted 1 times, which "
        "is the limit"
    ]


def test_a_command_that_has_saved_its_state_is_started_again_free_of_that_limit(case: Case) -> None:
    # 10 s is how long it must run to have got anywhere.
    script = "echo ${PATHWAYS_RESTART_COUNT-unset}; case ${PATHWAYS_RESTART_COUNT-0} in "
    script += "0) exit 7 ;; 1) sleep 10; exit 75 ;; esac"
    code, out, err = case.ended("--restarts", "1", script=script)
    assert (code, out) == (0, ["unset", "1", "2"])
    assert err == [
        "pathways-slurm: restart 1 of 1: command exited with 7; it failed at once, so this waits "
        "for 1 s",
        "pathways-slurm: restart (not counted): command exited with 75",
    ]


def test_a_command_that_does_nothing_but_ask_for_another_run_is_stopped(case: Case) -> None:
    code, out, err = case.ended("--restarts", "2", script="echo run; exit 75")
    assert (code, out) == (75, ["run"] * 3)
    assert "restart 1 of 2: command exited with 75; it failed at once" in err[0]
    assert err[-1].endswith("it was restarted 2 times, which is the limit")


@pytest.mark.parametrize("code", [0, 126, 127])
def test_what_no_restart_mends_is_not_restarted(case: Case, code: int) -> None:
    script = f"echo run; exit {code}"
    assert case.ended("--restarts", "3", script=script) == (code, ["run"], [])


def test_a_program_that_is_not_there_is_not_looked_for_again(case: Case) -> None:
    done = subprocess.run(
        [COMMAND, "run", "--restarts", "3", "--", "/no/such/program"],
        env={**os.environ, "PATHWAYS_HOME": str(case.directory)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 127
    assert done.stderr == "pathways-slurm: /no/such/program: command not found\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("catches", [False, True])
def test_a_command_that_was_asked_to_end_is_not_restarted(
    case: Case, number: signal.Signals, catches: bool
) -> None:
    # bash alone stays when it is interrupted and its child is not.
    rest = "exec sleep 60"
    if catches:
        rest = f"trap 'exit 5' {number.name.removeprefix('SIG')}; while :; do sleep 0.05; done"
    process = case.start("--restarts", "3", script=f"echo run >>$D/runs; {rest}")
    case.until(lambda: case.lines("runs"), "the command runs")
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert process.returncode == (5 if catches else 128 + number)
    assert err == ""
    assert case.lines("runs") == ["run"]


def test_a_restart_waits_for_the_service(case: Case) -> None:
    script = "echo run >>$D/runs; while [ ! -e $D/fail ]; do sleep 0.05; done; rm $D/fail; exit 9"
    process = case.start("--restarts", "2", script=script)
    assert process.stderr is not None
    case.until(lambda: case.lines("runs"), "the command runs")
    case.withdraw()
    (case.directory / "fail").touch()
    assert "restart 1 of 2: command exited with 9" in process.stderr.readline()
    assert "waiting for the service" in process.stderr.readline()
    assert case.lines("runs") == ["run"]
    case.publish()
    case.until(lambda: len(case.lines("runs")) == 2, "the command runs again")
    process.terminate()
    assert process.wait(30) == 128 + signal.SIGTERM


def test_a_service_that_does_not_come_back_ends_it(case: Case) -> None:
    script = "rm $D/cluster.env; exit 9"
    code, _, err = case.ended("--restarts", "2", "--timeout", "0.5", script=script)
    assert code == 1
    assert "no service after 0.5 s" in err[-1]


def test_an_interrupt_while_it_waits_for_the_service_ends_it(case: Case) -> None:
    process = case.start("--restarts", "2", script="rm $D/cluster.env; exit 9")
    assert process.stderr is not None
    assert "restart 1 of 2" in process.stderr.readline()
    assert "waiting for the service" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == -signal.SIGINT


NOTED = "trap 'echo got >>$D/got' USR1; echo up >>$D/up; while [ ! -e $D/end ]; do sleep 0.05; done"


def test_each_notice_and_the_end_of_the_service_is_a_signal(case: Case) -> None:
    case.notice(Going(1, 1, 1.0, "known before the start"))
    process = case.start("--notice-signal", "USR1", script=NOTED)
    case.until(lambda: case.lines("up"), "the command runs")
    case.notice(Going(1, 2, 2.0, "host 0 got SIGTERM"))
    case.until(lambda: len(case.lines("got")) == 1, "the command has the first notice")
    case.notice(Going(1, 2, 2.0, "host 0 got SIGTERM"), Going(0, 1, 2.0, "maintenance"))
    case.until(lambda: len(case.lines("got")) == 2, "the command has the second notice")
    case.notice(shutdown=Shutdown("Ctrl-C", 3.0))
    case.until(lambda: len(case.lines("got")) == 3, "the command knows of the service's end")
    (case.directory / "end").touch()
    assert process.wait(30) == 0
    assert len(case.lines("got")) == 3


def test_a_command_that_ends_of_a_notice_is_restarted(case: Case) -> None:
    script = "echo up >>$D/up; [ -z ${PATHWAYS_RESTART_COUNT-} ] || exit 0; "
    script += "while :; do sleep 0.05; done"
    process = case.start("--restarts", "1", "--notice-signal", "SIGTERM", script=script)
    case.until(lambda: case.lines("up"), "the command runs")
    case.notice(Going(1, 2, 2.0, "host 0 got SIGTERM"))
    _, err = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "restart 1 of 1: command was ended by signal 15 (SIGTERM)" in err
    assert case.lines("up") == ["up", "up"]


def test_without_the_option_notices_are_no_signals(case: Case) -> None:
    process = case.start(script=NOTED)
    case.until(lambda: case.lines("up"), "the command runs")
    case.notice(Going(1, 2, 2.0, "host 0 got SIGTERM"))
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1.5)  # three looks of a command that would have the signal
    (case.directory / "end").touch()
    assert process.wait(30) == 0
    assert case.lines("got") == []


@pytest.mark.parametrize("name", ["KILL", "STOP", "NONE", "", "10"])
def test_a_signal_that_is_no_notice_is_an_error_that_names_the_valid_ones(
    case: Case, name: str
) -> None:
    code, _, err = case.ended("--notice-signal", name, script="true")
    assert code == 2
    assert f"'{name}' is not a signal for a notice; valid: USR1, USR2, TERM" in err[-1]
