# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""A guard and what it guards, as real processes."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.guard.support import PATIENCE_S, STUBBORN, WILLING, known, sleeper, until

from pathways_slurm.processes import ProcessIdentity, descendants, is_alive


class Guarded:
    """One guard over a component that has forked a child out of its session."""

    def __init__(self, directory: Path, root: ProcessIdentity) -> None:
        self.directory = directory
        self.root = root
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, *argv: str, grace: float = 0.5) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "pathways_slurm.guard"),
                *("--root-pid", str(self.root.pid)),
                *("--root-start-time", str(self.root.start_time)),
                *("--status", str(self.directory / "status"), "--log", str(self.directory / "log")),
                *("--grace", str(grace), "--", *argv),
            ],
            stderr=subprocess.PIPE,
        )
        self.started.append(process)
        return process

    def run(self, script: str, grace: float = 0.5) -> "Family":
        """Starts ``script``, which must write its child's pid to the file $1."""
        ready = self.directory / "child"
        guard = self.start("/bin/sh", "-c", script, "sh", str(ready), grace=grace)
        until(lambda: ready.exists() and ready.read_text().strip(), "the component is ready")
        until(lambda: self.status().get("pid"), "there is a status")
        status = self.status()
        members = [known(status["pid"]), known(int(ready.read_text()))]
        return Family(guard, [*members, *descendants(guard.pid)])

    def status(self) -> dict[str, Any]:
        path = self.directory / "status"
        return dict(json.loads(path.read_text())) if path.exists() else {}

    def close(self) -> None:
        for process in self.started:
            process.kill()
            process.communicate()


class Family:
    """A guard with all the processes below it."""

    def __init__(self, guard: subprocess.Popen[bytes], members: list[ProcessIdentity]) -> None:
        self.guard = guard
        self.members = members

    def ended(self) -> int:
        """The guard's exit status, once it and all below it have ended."""
        code = self.guard.wait(PATIENCE_S)
        until(lambda: not any(map(is_alive, self.members)), "all processes end")
        return code


@pytest.fixture
def root() -> Iterator[subprocess.Popen[bytes]]:
    with sleeper() as process:
        yield process


@pytest.fixture
def guarded(tmp_path: Path, root: subprocess.Popen[bytes]) -> Iterator[Guarded]:
    made = Guarded(tmp_path, known(root.pid))
    yield made
    made.close()


@pytest.mark.parametrize(
    ("script", "code", "exit_code", "number"),
    [("exit 0", 0, 0, None), ("exit 3", 3, 3, None), ("kill -KILL $$", 137, None, 9)],
)
def test_ends_as_its_component_does(
    guarded: Guarded, script: str, code: int, exit_code: int | None, number: int | None
) -> None:
    guard = guarded.start("/bin/sh", "-c", f"echo out; echo err >&2; {script}")
    assert guard.wait(PATIENCE_S) == code
    status = guarded.status()
    assert (status["exit_code"], status["signal"]) == (exit_code, number)
    assert status["ended_at"] >= status["started_at"]
    assert (guarded.directory / "log").read_text() == "out\nerr\n"
    for name in ("status", "log"):
        assert (guarded.directory / name).stat().st_mode & 0o777 == 0o600


def test_says_whom_it_guards(guarded: Guarded) -> None:
    family = guarded.run(WILLING)
    status = guarded.status()
    assert status["guard_pid"] == family.guard.pid
    component = known(status["pid"])
    assert component.start_time == status["start_time"]
    assert os.getsid(component.pid) == component.pid
    assert "ended_at" not in status


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize(("script", "number"), [(WILLING, 15), (STUBBORN, 9)])
def test_ends_with_its_root(
    guarded: Guarded,
    root: subprocess.Popen[bytes],
    how: signal.Signals,
    script: str,
    number: int,
) -> None:
    family = guarded.run(script)
    root.send_signal(how)
    # The root is a zombie now, and that is an end.
    assert family.ended() == 128 + number
    assert guarded.status()["signal"] == number
    assert "root" in guarded.status()["reason"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(("script", "last"), [(WILLING, 15), (STUBBORN, 9)])
def test_ends_its_component_on_a_signal(
    guarded: Guarded, number: signal.Signals, script: str, last: int
) -> None:
    family = guarded.run(script)
    family.guard.send_signal(number)
    assert family.ended() == 128 + last
    assert number.name in guarded.status()["reason"]


@pytest.mark.parametrize("script", [WILLING, STUBBORN])
def test_when_killed_takes_everything_along(guarded: Guarded, script: str) -> None:
    # With a grace time far beyond the test's patience: it must not matter now.
    family = guarded.run(script, grace=1000.0)
    family.guard.kill()
    assert family.ended() == -signal.SIGKILL
    assert "ended_at" not in guarded.status()


def test_survives_nothing_of_its_component(guarded: Guarded) -> None:
    family = guarded.run(WILLING)
    os.kill(guarded.status()["pid"], signal.SIGKILL)
    assert family.ended() == 137


def test_the_process_in_between_may_be_killed_too(guarded: Guarded) -> None:
    family = guarded.run(STUBBORN, grace=1000.0)
    guard = family.guard.pid
    (keeper,) = Path(f"/proc/{guard}/task/{guard}/children").read_text().split()
    os.kill(int(keeper), signal.SIGKILL)
    assert family.ended() == 137
    assert guarded.status()["signal"] == 9


@pytest.mark.parametrize("ticks", [0, 1])
def test_starts_nothing_for_a_root_that_has_ended(
    guarded: Guarded, root: subprocess.Popen[bytes], ticks: int
) -> None:
    # Ended, or its pid belongs to a later process.
    guarded.root = guarded.root._replace(start_time=guarded.root.start_time - ticks)
    if not ticks:
        root.kill()
        root.wait()
    guard = guarded.start("/bin/sh", "-c", f"touch {guarded.directory}/started")
    _, errors = guard.communicate(timeout=PATIENCE_S)
    assert guard.returncode == 127
    assert b"root process" in errors
    assert "has ended" in guarded.status()["error"]
    assert not (guarded.directory / "started").exists()


def test_says_why_a_program_did_not_start(guarded: Guarded) -> None:
    guard = guarded.start("/no/such/program")
    _, errors = guard.communicate(timeout=PATIENCE_S)
    assert guard.returncode == 127
    assert b"/no/such/program" in errors
    assert "/no/such/program" in guarded.status()["error"]
    assert "pid" not in guarded.status()


def test_appends_to_the_log(guarded: Guarded) -> None:
    for word in ("one", "two"):
        assert guarded.start("/bin/echo", word).wait(PATIENCE_S) == 0
    assert (guarded.directory / "log").read_text() == "one\ntwo\n"


def test_component_has_ordinary_signals_and_no_descriptors(guarded: Guarded) -> None:
    script = "grep -E '^Sig(Blk|Ign)' /proc/self/status; ls /proc/self/fd"
    assert guarded.start("/bin/sh", "-c", script).wait(PATIENCE_S) == 0
    lines = (guarded.directory / "log").read_text().split()
    # Signals 32 and 33 are glibc's own: its posix_spawn, which subprocess uses from Python 3.13 on,
    # has them ignored.
    blocked, ignored = (int(mask, 16) & ~(0b11 << 31) for mask in (lines[1], lines[3]))
    assert (lines[0], blocked, lines[2], ignored) == ("SigBlk:", 0, "SigIgn:", 0)
    # The last is that of ls itself.
    assert lines[4:] == ["0", "1", "2", "3"]
