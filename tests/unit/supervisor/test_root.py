# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The supervisor's parent, with small programs in the supervisor's place."""

import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pathways_slurm.budget import Budget
from pathways_slurm.root import Root


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


class Recorder:
    """Runs a root over a program and keeps what it says and does."""

    def __init__(self, program: str, *argv: str, limit: int = 2, left_over: int = 0) -> None:
        self.said: list[str] = []
        self.cleaned: list[str] = []
        self.meanwhile: Callable[[], None] = lambda: None
        self._left_over = left_over
        self.root = Root(
            argv=[sys.executable, "-c", program, *argv],
            budget=Budget(limit, 600.0),
            clean_up=self._clean_up,
            report=self.said.append,
            meanwhile=lambda: self.meanwhile(),
        )

    def _clean_up(self, reason: str) -> int:
        self.cleaned.append(reason)
        return self._left_over


@pytest.mark.parametrize("code", [0, 1, 2, 3])
def test_a_final_exit_code_is_passed_on(code: int) -> None:
    recorder = Recorder(f"raise SystemExit({code})")
    assert recorder.root.run() == code
    assert not recorder.said


def test_a_supervisor_that_dies_is_started_again_until_it_lives(tmp_path: Path) -> None:
    program = """
import os, signal, sys
with open(sys.argv[1], "a+") as file:
    file.write("x"); file.seek(0)
    if len(file.read()) < 3:
        file.flush(); os.kill(os.getpid(), signal.SIGKILL)
"""
    recorder = Recorder(program, str(tmp_path / "starts"))
    assert recorder.root.run() == 0
    assert (tmp_path / "starts").read_text() == "xxx"
    assert len(recorder.said) == 2
    assert "was ended by signal 9 (SIGKILL); starting it again" in recorder.said[0]


def test_one_that_keeps_dying_is_given_up_and_cleaned_up_after() -> None:
    recorder = Recorder("raise SystemExit(70)")
    assert recorder.root.run() == 1
    assert len(recorder.said) == 3
    assert recorder.cleaned
    assert "restart budget has run out (2 of 2 used" in recorder.cleaned[0]


def test_a_stop_signal_reaches_the_supervisor_and_is_final() -> None:
    program = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print(flush=True)
signal.pause()
"""
    recorder = Recorder(program)

    def stop_once() -> None:
        recorder.meanwhile = lambda: None
        signal.raise_signal(signal.SIGINT)

    recorder.meanwhile = stop_once
    code = recorder.root.run()
    # Where the signal comes before the program has its handler, it dies of it: an end as well.
    assert code == 0
    assert recorder.said == ["SIGINT: ending the service ..."]


def test_a_supervisor_that_is_killed_while_stopping_is_not_started_again() -> None:
    recorder = Recorder("import time; time.sleep(60)")

    def stop_once() -> None:
        recorder.meanwhile = lambda: None
        signal.raise_signal(signal.SIGTERM)

    recorder.meanwhile = stop_once
    assert recorder.root.run() == 0
    assert "while the service was being ended" in recorder.cleaned[0]


def test_restarts_wait_longer_each_time_and_a_stop_signal_ends_the_wait() -> None:
    recorder = Recorder("raise SystemExit(70)", limit=10)
    said = recorder.said

    def stop_in_the_second_pause() -> None:
        if any("in 1 s" in words for words in said):
            signal.raise_signal(signal.SIGTERM)

    recorder.meanwhile = stop_in_the_second_pause
    assert recorder.root.run() == 0
    assert "starting it again (1 of 10" in said[0]
    assert "starting it again in 1 s (2 of 10" in said[1]
    assert recorder.cleaned == ["asked to while no supervisor ran"]
