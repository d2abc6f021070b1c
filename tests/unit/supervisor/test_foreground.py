# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""A command in the place of this process."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pathways_slurm.foreground import run_in_foreground

RUNNER = """
import os, sys
from pathways_slurm.foreground import run_in_foreground
sys.exit(run_in_foreground(sys.argv[1:], os.environ))
"""


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 9", 9), ("kill -15 $$", 143)])
def test_the_exit_code_is_the_commands(script: str, code: int) -> None:
    assert run_in_foreground(["/bin/sh", "-c", script], os.environ) == code


def test_a_command_that_is_not_there_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        run_in_foreground(["/no/such/program"], os.environ)


def test_the_command_gets_no_blocked_signals(tmp_path: Path) -> None:
    out = tmp_path / "status"
    run_in_foreground(["/bin/sh", "-c", f"cat /proc/self/status > '{out}'"], os.environ)
    (blocked,) = [line for line in out.read_text().splitlines() if line.startswith("SigBlk")]
    assert int(blocked.split()[1], 16) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_signal_of_another_process_is_passed_on_once(number: signal.Signals) -> None:
    name = number.name.removeprefix("SIG")
    script = f"trap 'echo got' {name}; echo ready; n=0; "
    script += "while [ $n -lt 600 ]; do read -t 0.05 line && exit 3; n=$((n+1)); done"
    runner = subprocess.Popen(
        [sys.executable, "-c", RUNNER, "bash", "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with runner:
        assert runner.stdout is not None
        assert runner.stdin is not None
        assert runner.stdout.readline() == "ready\n"
        runner.send_signal(number)
        assert runner.stdout.readline() == "got\n"
        runner.stdin.write("done\n")
        runner.stdin.flush()
        assert runner.stdout.read() == ""
        assert runner.wait(20) == 3
