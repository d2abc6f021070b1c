# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The looks, at what is really there: processes, connections, files, and a whole checker."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.chaos import sightings
from tests.chaos.checker import Checker, Subject, parse_squeue
from tests.chaos.judging import Bounds
from tests.chaos.sightings import LineReader, Task, Worker

_REASONS = frozenset({"SliceLost"})


_ACTOR = """
import socket, sys
host, port = sys.argv[1].removeprefix("--resource_manager_address=").rsplit(":", 1)
with socket.create_connection((host, int(port))) as connection:
    print("connected", flush=True)
    connection.recv(1)
"""


class Play:
    """A home, a port that plays the resource manager, and processes that play workers."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.server = socket.create_server(("127.105.9.1", 0))
        self.address = "{}:{}".format(*self.server.getsockname())
        self.actors: list[subprocess.Popen[str]] = []

    def worker(self, incarnation: int, **variables: str) -> subprocess.Popen[str]:
        environ = {
            "PATHWAYS_HOME": str(self.home),
            "PATHWAYS_BIND_ADDRESS": "127.105.9.2",
            "PATHWAYS_SLICE_INDEX": "3",
            "PATHWAYS_HOST_INDEX": "1",
            "PATHWAYS_INCARNATION": str(incarnation),
            **variables,
        }
        flag = f"--resource_manager_address={self.address}"
        actor = subprocess.Popen(
            [sys.executable, "-c", _ACTOR, flag], env=environ, stdout=subprocess.PIPE, text=True
        )
        self.actors.append(actor)
        assert actor.stdout is not None
        assert actor.stdout.readline() == "connected\n"
        return actor

    def close(self) -> None:
        for actor in self.actors:
            actor.kill()
            actor.communicate()
        self.server.close()

    def found(self) -> list[Worker]:
        return sightings.workers(sightings.processes(str(self.home), "EXEMPT"))


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Play]:
    scene = Play(tmp_path / "home")
    scene.home.mkdir()
    yield scene
    scene.close()


def test_workers_are_seen_in_proc(play: Play) -> None:
    actor = play.worker(2)
    (found,) = play.found()
    assert (found.process.pid, found.slice, found.host) == (actor.pid, 3, 1)
    assert (found.incarnation, found.connected, found.stopped) == (2, True, False)
    actor.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, actor.pid, os.WSTOPPED | os.WNOWAIT)
    assert play.found()[0].stopped
    play.worker(1, EXEMPT="1")
    assert len(play.found()) == 1


def test_a_connection_that_has_ended_is_none(play: Play) -> None:
    actor = play.worker(1)
    server, _ = play.server.accept()
    assert play.found()[0].connected
    server.close()
    actor.communicate(timeout=20)
    assert play.found() == []


def test_a_second_incarnation_that_stays_is_found(play: Play) -> None:
    """Real processes, really connected, under a whole checker."""
    subject = Subject(
        home=play.home, known_reasons=_REASONS, exempt="EXEMPT", bounds=Bounds(old_incarnation_s=1)
    )
    checker = Checker(subject)
    checker.cause(3)
    play.worker(1)
    play.worker(2)
    checker.start()
    try:
        deadline = time.monotonic() + 30
        while not checker.violations and time.monotonic() < deadline:
            time.sleep(0.1)
    finally:
        checker.close()
    assert [violation.invariant for violation in checker.violations] == [1]
    assert "incarnation 2 of slice 3 takes part" in checker.violations[0].words


def _await_its_end() -> None:
    """Returns when the checker's thread has ended."""
    (thread,) = [one for one in threading.enumerate() if one.name == "checker"]
    thread.join(20)


def test_a_checker_that_fails_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checker = Checker(Subject(home=tmp_path, known_reasons=_REASONS, exempt="EXEMPT"))
    monkeypatch.setattr(checker, "look", lambda: 1 / 0)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    checker.start()
    _await_its_end()
    with pytest.raises(RuntimeError, match="the checker has failed"):
        _ = checker.violations
    with pytest.raises(RuntimeError, match="what it said is void"):
        checker.close()


def test_a_port_that_only_takes_connections_does_not_answer() -> None:
    with socket.create_server(("127.105.9.1", 0)) as server:
        endpoint = server.getsockname()
        assert not sightings.speaks_http2(endpoint)
    assert not sightings.speaks_http2(endpoint)


def test_a_grpc_server_answers() -> None:
    program = (
        "import grpc, sys\n"
        "from concurrent import futures\n"
        "server = grpc.server(futures.ThreadPoolExecutor(1))\n"
        "print(server.add_insecure_port('127.105.9.1:0'), flush=True)\n"
        "server.start(); sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdout is not None
        endpoint = ("127.105.9.1", int(server.stdout.readline()))
        deadline = time.monotonic() + 20
        while not sightings.speaks_http2(endpoint):
            assert time.monotonic() < deadline
        server.send_signal(signal.SIGSTOP)
        assert not sightings.speaks_http2(endpoint)
        server.send_signal(signal.SIGCONT)
        server.communicate("")


def test_cluster_env_is_read_as_anybody_reads_it(tmp_path: Path) -> None:
    file = tmp_path / "cluster.env"
    assert sightings.proxy_of(file) is None
    file.write_text("# words\nexport JAX_BACKEND_TARGET=grpc://127.0.0.1:29000\nexport A=b\n")
    assert sightings.proxy_of(file) == ("127.0.0.1", 29000)
    file.write_text("export JAX_PLATFORMS=proxy\n")
    assert sightings.proxy_of(file) == ("", 0)


def test_lines_are_read_once_and_whole(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    reader = LineReader(file)
    assert reader.lines() == []
    file.write_text('{"a": 1}\nnonsense\n{"b":')
    assert [line.fields for line in reader.lines()] == [{"a": 1}, None]
    with file.open("a") as more:
        more.write(" 2}\n")
    assert [line.fields for line in reader.lines()] == [{"b": 2}]


def test_squeue_is_read_with_all_that_a_name_may_hold() -> None:
    text = "3||RUNNING|0|start_pathways.sh|\n4|0|RUNNING|2|pathways-abc-0|\n4|1|PENDING|0|a|b|\n"
    assert parse_squeue(text) == (
        Task("4", 0, "pathways-abc-0", "RUNNING", 2),
        Task("4", 1, "a|b", "PENDING", 0),
    )
