# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What interrupts the supervisor's wait."""

import os
import signal
import subprocess
import time

import pytest

from pathways_slurm.wakeup import Wakeup


def test_it_waits_as_long_as_asked() -> None:
    with Wakeup() as wakeup:
        began = time.monotonic()
        wakeup.wait(0.05)
        assert time.monotonic() - began >= 0.05
        assert wakeup.stop_reason == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_stop_signal_ends_the_wait_and_is_the_reason(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with Wakeup() as wakeup:
        signal.raise_signal(number)
        began = time.monotonic()
        wakeup.wait(30.0)
        assert time.monotonic() - began < 10
        assert wakeup.stop_reason == f"asked to by {number.name}"
        signal.raise_signal(signal.SIGTERM)
        assert wakeup.stop_reason == f"asked to by {number.name}", "the first reason stays"
    assert signal.getsignal(number) is before


def test_the_end_of_the_watched_process_ends_the_wait() -> None:
    process = subprocess.Popen(["/bin/sleep", "60"])
    descriptor = os.pidfd_open(process.pid)
    try:
        with Wakeup(descriptor) as wakeup:
            process.kill()
            began = time.monotonic()
            wakeup.wait(30.0)
            assert time.monotonic() - began < 10
            assert "has ended" in wakeup.stop_reason
            began = time.monotonic()
            wakeup.wait(0.05)
            assert time.monotonic() - began >= 0.05, "it is told once"
    finally:
        os.close(descriptor)
        process.wait()


def test_something_new_ends_the_wait() -> None:
    answers = iter([False, False, True])
    with Wakeup() as wakeup:
        began = time.monotonic()
        wakeup.wait(30.0, lambda: next(answers))
        assert time.monotonic() - began < 10
        assert next(answers, None) is None, "it was asked until it said so"
        assert wakeup.stop_reason == ""


def test_no_time_to_wait_is_no_wait() -> None:
    with Wakeup() as wakeup:
        began = time.monotonic()
        wakeup.wait(0.0)
        assert time.monotonic() - began < 0.15


def test_a_stop_is_not_waited_for_while_nothing_is_new() -> None:
    with Wakeup() as wakeup:
        signal.raise_signal(signal.SIGTERM)
        asked = iter([False])
        wakeup.wait(30.0, lambda: next(asked))
        assert list(asked) == [False], "nobody asked"
