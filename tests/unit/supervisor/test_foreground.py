# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""A command in the place of this process."""

import contextlib
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pathways_slurm.foreground import Ended, run_in_foreground

RUNNER = """
import os, sys
from pathways_slurm.foreground import run_in_foreground
ended = run_in_foreground(sys.argv[1:], os.environ)
print(*ended[:3], flush=True)
sys.exit(ended.code)
"""

# Leaves nothing behind when the shell is killed.
FOREVER = "while :; do sleep 0.05; done"


def until(look: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not look():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 9", 9), ("kill -15 $$", 143)])
def test_the_exit_code_is_the_commands(script: str, code: int) -> None:
    assert run_in_foreground(["/bin/sh", "-c", script], os.environ).code == code


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
        # Not ended by it, but after it: that somebody asked counts, whatever is made of it.
        asked = number in (signal.SIGTERM, signal.SIGINT)
        assert runner.stdout.read() == f"3 None {asked}\n"
        assert runner.wait(20) == 3


@pytest.mark.parametrize(
    ("script", "ended"),
    [
        ("exit 7", Ended(7, None, asked=False)),
        ("kill -9 $$", Ended(137, 9, asked=False)),
        # Passed on, as $PPID is the runner.
        (f"kill -USR1 $PPID; {FOREVER}", Ended(138, 10, asked=True)),
        (f"kill -TERM $PPID; {FOREVER}", Ended(143, 15, asked=True)),
        (f"trap 'exit 5' TERM; kill -TERM $PPID; {FOREVER}", Ended(5, None, asked=True)),
        (f"trap 'exit 5' USR1; kill -USR1 $PPID; {FOREVER}", Ended(5, None, asked=False)),
    ],
)
def test_who_wanted_the_end_is_known(script: str, ended: Ended) -> None:
    runner = subprocess.run(
        [sys.executable, "-c", RUNNER, "bash", "-c", script],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        timeout=30,
    )
    assert runner.stdout == f"{ended.code} {ended.signal} {ended.asked}\n"
    assert runner.returncode == ended.code


def test_the_interrupt_of_a_terminal_reaches_the_command_once_and_counts_as_asked(
    tmp_path: Path,
) -> None:
    script = f"trap 'echo got >>{tmp_path}/got' INT; touch {tmp_path}/up; "
    script += f"while [ ! -e {tmp_path}/end ]; do sleep 0.05; done; exit 3"
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-c", RUNNER, "bash", "-c", script])
    until((tmp_path / "up").exists)
    os.write(terminal, b"\x03")
    until((tmp_path / "got").exists)
    (tmp_path / "end").touch()
    said = b""
    with contextlib.suppress(OSError):  # a terminal whose last process has ended
        while chunk := os.read(terminal, 4096):
            said += chunk
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 3
    assert said.endswith(b"3 None True\r\n")
    assert (tmp_path / "got").read_text() == "got\n"


def test_prompts_reach_the_command_and_are_nobodys_wish_that_it_ends(tmp_path: Path) -> None:
    up = tmp_path / "up"
    sent: list[signal.Signals] = []

    def prompts() -> list[signal.Signals]:
        if not up.exists() or sent:
            return []
        sent.append(signal.SIGTERM)
        return [signal.SIGTERM]

    script = f"trap 'exit 5' TERM; touch {up}; {FOREVER}"
    ended = run_in_foreground(["bash", "-c", script], os.environ, prompts)
    assert ended == Ended(5, None, asked=False)
    assert sent == [signal.SIGTERM]
