# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Which processes are a cluster's, and how they end."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from slurm.devcluster import members

# Says when it runs; ends by SIGTERM unless told to ignore it.
PROGRAM = """
import signal, sys, time
if "stubborn" in sys.argv: signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(flush=True)
time.sleep(600)
"""
SECONDS = 20.0


class Processes:
    """Marked processes of one test."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, *argv: str, node: str | None = None, marked: bool = True) -> int:
        env = {"PATH": os.environ["PATH"]}
        if marked:
            env[members.DIRECTORY_VARIABLE] = str(self.directory)
        if node is not None:
            env[members.NODE_VARIABLE] = node
        process = subprocess.Popen(
            argv or (sys.executable, "-S", "-c", PROGRAM), env=env, stdout=subprocess.PIPE
        )
        self._started.append(process)
        assert process.stdout is not None
        process.stdout.readline()
        return process.pid

    def end(self) -> None:
        members.kill_all(lambda: members.find(self.directory), SECONDS)
        for process in self._started:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    started = Processes(tmp_path)
    yield started
    started.end()


def found(processes: Processes) -> dict[int, str | None]:
    return {one.process.pid: one.node for one in members.find(processes.directory)}


def test_marked_processes_and_no_others(processes: Processes) -> None:
    one = processes.start(node="a")
    two = processes.start()
    processes.start(marked=False)
    assert found(processes) == {one: "a", two: None}


def test_what_a_member_starts_is_one_whatever_its_environment(processes: Processes) -> None:
    parent = processes.start(
        *("bash", "-c", f"env -i {sys.executable} -S -c '{PROGRAM}' & wait"), node="a"
    )
    (child,) = psutil.Process(parent).children()
    assert found(processes) == {parent: "a", child.pid: "a"}


def test_an_orphan_is_found_by_its_mark(processes: Processes) -> None:
    program = f"setsid {sys.executable} -S -c '{PROGRAM}' & exec sleep 0.01"
    parent = processes.start("bash", "-c", program, node="a")
    psutil.Process(parent).wait(SECONDS) if psutil.pid_exists(parent) else None
    assert list(found(processes).values()) == ["a"]


def test_this_process_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from slurm.devcluster import members\n"
        "print(members.find(Path(sys.argv[1])))"
    )
    monkeypatch.setenv(members.DIRECTORY_VARIABLE, str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        cwd=Path(__file__).parents[3],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"


def test_ending_asks_first_and_then_does_not(processes: Processes) -> None:
    processes.start(sys.executable, "-S", "-c", PROGRAM, node="a")
    stubborn = processes.start(sys.executable, "-S", "-c", PROGRAM, "stubborn", node="a")
    before = members.find(processes.directory)
    members.terminate(before)
    (left,) = members.wait_gone(before, 1.0)
    assert left.process.pid == stubborn
    assert str(left) == f"job process {stubborn} on a"
    assert members.kill_all(lambda: members.find(processes.directory), SECONDS) == []
    assert members.wait_gone(before, SECONDS) == []
