# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Who is heard, what the options are, and what Slurm leaves of time."""

import os
import signal
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest

from pathways_elastic.autocheckpoint import Autocheckpoint, Options
from pathways_elastic.autocheckpoint_signal import SigtermHandler
from pathways_elastic.autocheckpoint_slurm import shortfall, shortfall_here
from pathways_elastic.notice_board import NoticeBoard, Source


@pytest.fixture(autouse=True)
def handler_before() -> Iterator[None]:
    """Whatever a test does, SIGTERM afterwards does what it did."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def terminate() -> None:
    signal.raise_signal(signal.SIGTERM)


def test_a_handler_of_the_program_is_called_too_and_is_back_at_the_end() -> None:
    calls: list[str] = []

    def own(_number: int, _frame: FrameType | None) -> None:
        calls.append("own")

    signal.signal(signal.SIGTERM, own)
    handler = SigtermHandler(lambda: calls.append("heard"))
    assert handler.install()
    terminate()
    assert calls == ["heard", "own"]
    handler.remove()
    assert signal.getsignal(signal.SIGTERM) is own


def test_what_ended_the_process_before_does_not_end_it_any_more() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    calls: list[str] = []
    handler = SigtermHandler(lambda: calls.append("heard"))
    handler.install()
    terminate()
    assert calls == ["heard"]
    handler.remove()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.parametrize("calls_the_one_before", [False, True])
def test_a_handler_that_is_installed_later_does_not_take_the_signal_away(
    calls_the_one_before: bool, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []
    handler = SigtermHandler(lambda: calls.append("heard"))
    handler.install()
    before = signal.getsignal(signal.SIGTERM)

    def own(number: int, frame: FrameType | None) -> None:
        calls.append("own")
        if calls_the_one_before and callable(before):
            before(number, frame)

    signal.signal(signal.SIGTERM, own)
    handler.keep()
    handler.keep()
    assert [record.message for record in caplog.records if "now both get it" in record.message]
    terminate()
    assert calls.count("own") == 1
    assert calls[0] == "heard"


def test_other_threads_can_hear_of_no_signal() -> None:
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(SigtermHandler(lambda: None).install()))
    thread.start()
    thread.join()
    assert answers == [False]


def test_signals_are_heard_at_once_also_while_the_decision_is_being_made() -> None:
    one = Autocheckpoint(Options(enabled=True), NoticeBoard(Source(None, None, forwards=False)))
    handler = SigtermHandler(lambda: one.request("SIGTERM"))
    handler.install()
    # In the main thread, as a handler: with a lock of the decision's this would hang.
    with one._lock:
        terminate()
    assert one.requested
    assert one.reached(1)


def test_it_is_off_unless_somebody_turns_it_on() -> None:
    assert Options.of({}) == Options(enabled=False, exit_after=False, timeout_s=300.0)
    assert Options.of({"ENABLE_AUTOCHECKPOINT": "true"}).enabled
    assert Options.of({"ENABLE_AUTOCHECKPOINT": "True"}).enabled
    assert not Options.of({"ENABLE_AUTOCHECKPOINT": "false"}).enabled
    assert not Options.of({"ENABLE_AUTOCHECKPOINT": "true"}, enabled=False).enabled
    given = {"EXIT_AFTER_AUTOCHECKPOINT": "1", "AUTOCHECKPOINT_TIMEOUT_S": "20"}
    assert Options.of(given, enabled=True) == Options(True, True, 20.0)
    assert Options.of(given, True, False, 5.0) == Options(True, False, 5.0)


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"ENABLE_AUTOCHECKPOINT": "yes"}, "ENABLE_AUTOCHECKPOINT is 'yes'; valid: true or false"),
        ({"EXIT_AFTER_AUTOCHECKPOINT": "2"}, "EXIT_AFTER_AUTOCHECKPOINT is '2'"),
        ({"AUTOCHECKPOINT_TIMEOUT_S": "5m"}, "AUTOCHECKPOINT_TIMEOUT_S is '5m'; valid: seconds"),
        ({"AUTOCHECKPOINT_TIMEOUT_S": "0"}, "must be > 0 and finite, got 0"),
        ({"AUTOCHECKPOINT_TIMEOUT_S": "nan"}, "must be > 0 and finite, got nan"),
    ],
)
def test_a_variable_with_a_wrong_value_is_an_error_that_says_what_is_right(
    environ: dict[str, str], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        Options.of(environ)


CONFIG = (
    "Configuration data as of now\nKillOnBadExit           = 0\nKillWait                = 30 sec\n"
)
PARTITION = "PartitionName=low\n   DisableRootJobs=NO GraceTime={} Hidden=NO\n"


@pytest.mark.parametrize(
    ("timeout_s", "grace_s", "enough"),
    [(300, 0, False), (300, 269, False), (300, 270, True), (30, 0, True), (31, 0, False)],
)
def test_a_step_has_the_grace_time_and_kill_wait_or_is_told_how_to_get_more(
    timeout_s: float, grace_s: int, enough: bool
) -> None:
    said = shortfall(timeout_s, CONFIG, PARTITION.format(grace_s), "low", in_step=True)
    assert (said is None) is enough
    if said is not None:
        assert f"may take {timeout_s} s" in said
        assert f"30 s after the signal when it is cancelled (KillWait), {grace_s + 30} s" in said
        assert f"GraceTime={timeout_s} on the partition or KillWait={timeout_s}" in said
        assert "partition low" in said
        assert f"sbatch --signal=TERM@{timeout_s}" in said


@pytest.mark.parametrize(
    ("timeout_s", "grace_s", "enough"),
    [(300, 0, False), (300, 300, False), (31, 1, False), (30, 0, True), (30, 300, True)],
)
def test_a_batch_script_has_kill_wait_only_and_is_told_to_use_srun(
    timeout_s: float, grace_s: int, enough: bool
) -> None:
    said = shortfall(timeout_s, CONFIG, PARTITION.format(grace_s), "low", in_step=False)
    assert (said is None) is enough
    if said is not None:
        assert f"may take {timeout_s} s" in said
        assert "30 s after the signal (KillWait), also when it is preempted" in said
        assert f"and have {grace_s + 30} s (with GraceTime of partition low)" in said
        assert "Start it with srun" in said
        # Only where srun is not all it takes.
        assert (f"GraceTime={timeout_s} on the partition" in said) is (grace_s == 0)
        assert f"KillWait={timeout_s}" in said
        assert f"sbatch --signal=B:TERM@{timeout_s}" in said


@pytest.mark.parametrize(
    ("config", "partition"), [("", PARTITION.format(0)), (CONFIG, ""), ("", "")]
)
def test_what_slurm_does_not_say_is_no_finding(config: str, partition: str) -> None:
    assert shortfall(300, config, partition, "low", in_step=True) is None
    assert shortfall(300, config, partition, "low", in_step=False) is None


@pytest.fixture
def scontrol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Puts a scontrol of the test's on PATH."""

    def install(script: str) -> None:
        program = tmp_path / "scontrol"
        program.write_text(f"#!/bin/bash\n{script}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    return install


JOB = {"SLURM_JOB_ID": "7", "SLURM_JOB_PARTITION": "low"}
ANSWERS = (
    'case "$*" in\n'
    '"show config") printf "KillWait                = 30 sec\\n" ;;\n'
    '"show partition low") printf "   GraceTime=60 Hidden=NO\\n" ;;\n'
    '"show step 7.0") printf "StepId=7.0 UserId=0\\n" ;;\n'
    '"show step 7.3") printf "Job step 7.3 not found\\n"; exit 1 ;;\n'
    "*) exit 1 ;;\n"
    "esac"
)


def test_slurm_is_asked_in_its_jobs_only(scontrol: Callable[[str], None]) -> None:
    scontrol(ANSWERS)
    assert "GraceTime of partition low" in (shortfall_here(300, JOB) or "")
    assert shortfall_here(20, JOB) is None
    assert shortfall_here(300, {}) is None


def test_who_is_in_a_step_has_the_grace_time_too(scontrol: Callable[[str], None]) -> None:
    scontrol(ANSWERS)
    assert "Start it with srun" in (shortfall_here(80, JOB) or "")
    assert shortfall_here(80, {**JOB, "SLURM_STEP_ID": "0"}) is None
    # As of a batch script that was submitted from within step 3 of another job.
    assert "Start it with srun" in (shortfall_here(80, {**JOB, "SLURM_STEP_ID": "3"}) or "")


def test_a_slurm_that_does_not_answer_is_no_finding(scontrol: Callable[[str], None]) -> None:
    scontrol("echo Unable to contact slurm controller >&2; exit 1")
    assert shortfall_here(300, JOB) is None
