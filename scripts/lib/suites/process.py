# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the process of one suite to its end, and leaves nothing of it behind."""

import contextlib
import os
import shlex
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

import psutil

from suites.outcome import Ended, read_junit

# Every process that a suite starts, whoever its parent is by now, inherits this variable.
_MARK = "TEST_SUITE_RUN"

# SIGINT lets pytest say where it was and run its finalizers.
_STOP_STEPS = ((signal.SIGINT, 30.0), (signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0))

# What a test ended may take this long to be gone.
_GONE_S = 10.0
_POLL_S = 0.1


def run(command: Sequence[str], *, cwd: Path, limit_s: float, uid: int | None = None) -> Ended:
    """Runs a suite's command with ``--junit-xml FILE`` appended, for at most ``limit_s`` seconds.

    ``uid``, if given, is the user that the command will have become when it writes that file.

    A KeyboardInterrupt stops the suite and is reported as ``interrupted``; a second one while it
    stops kills it.
    """
    mark = uuid.uuid4().hex
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment[_MARK] = mark
    with tempfile.TemporaryDirectory(prefix="suite-") as scratch:
        report = Path(scratch) / "junit.xml"
        if uid is not None:
            os.chown(scratch, uid, -1)
        started = time.monotonic()
        # A session of its own: Ctrl-C on the terminal comes to this process alone, which then ends
        # the suite once and in order.
        process = subprocess.Popen(
            [*command, f"--junit-xml={report}"],
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        stopped_at_limit = interrupted = False
        left_behind: tuple[str, ...] = ()
        try:
            try:
                process.wait(limit_s)
            except subprocess.TimeoutExpired:
                stopped_at_limit = True
                _stop(process)
            seconds = time.monotonic() - started
            if not stopped_at_limit:
                left_behind = _command_lines(_wait_until_gone(mark))
        except KeyboardInterrupt:
            interrupted = True
            seconds = time.monotonic() - started
            _stop(process)
        finally:
            if process.poll() is None:
                _signal_group(process, signal.SIGKILL)
                process.wait()
            _kill(_marked(mark))
        return Ended(
            exit_code=process.returncode,
            seconds=seconds,
            counts=read_junit(report),
            stopped_at_limit=stopped_at_limit,
            interrupted=interrupted,
            left_behind=left_behind,
        )


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Ends a suite, at first politely. An impatient KeyboardInterrupt skips to the end."""
    for number, patience_s in _STOP_STEPS:
        _signal_group(process, number)
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            continue
        except KeyboardInterrupt:
            _signal_group(process, signal.SIGKILL)
            process.wait()
        return


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _marked(mark: str) -> list[psutil.Process]:
    """The live processes that inherited the mark."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(_MARK) == mark:
                found.append(process)
    return found


def _wait_until_gone(mark: str) -> list[psutil.Process]:
    deadline = time.monotonic() + _GONE_S
    while (left := _marked(mark)) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return left


def _command_lines(processes: Sequence[psutil.Process]) -> tuple[str, ...]:
    lines = []
    for process in processes:
        with contextlib.suppress(psutil.Error):
            lines.append(f"{process.pid} {shlex.join(process.cmdline())[:100]}")
    return tuple(lines)


def _kill(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(processes, timeout=_GONE_S)
