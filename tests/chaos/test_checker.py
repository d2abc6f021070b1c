# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The checker sees what is there, finds what is wrong, and knows nothing of the project."""

import ast
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.chaos import sightings
from tests.chaos.checker import Checker, Subject, parse_squeue
from tests.chaos.rules import Bounds, Causes, all_rules
from tests.chaos.sightings import Line, LineReader, Process, Sighting, Task, Worker

_HERE = Path(__file__).parent
_REASONS = frozenset({"SliceLost", "SliceRequeued", "BudgetExhausted"})
_BOUNDS = Bounds(component_budget=(2, 60.0), slice_budget=(2, 60.0))
_ROOT = Process(1, 1, 0, "S", ("python", "pathways-slurm", "up"), {})


# ---------------------------------------------------------------- what it may know


def test_the_checker_imports_the_standard_library_only() -> None:
    queue, seen = ["checker"], set()
    while queue:
        name = queue.pop()
        seen.add(name)
        for node in ast.walk(ast.parse((_HERE / f"{name}.py").read_text())):
            for module in _imported(node):
                if module.startswith("tests.chaos."):
                    queue += [module.split(".")[2]] if module.split(".")[2] not in seen else []
                else:
                    assert module.split(".")[0] in sys.stdlib_module_names, f"{name}.py: {module}"
    assert seen == {"checker", "rules", "sightings"}


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, "relative"
        assert node.module is not None
        package = node.module == "tests.chaos"
        return [f"{node.module}.{a.name}" for a in node.names] if package else [node.module]
    return []


def test_the_checker_runs_without_the_project_installed() -> None:
    program = "import sys; sys.path.insert(0, sys.argv[1]); import tests.chaos.checker"
    subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, str(_HERE.parents[1])], check=True, timeout=30
    )


# ---------------------------------------------------------------- the rules, one by one


def _worker(index: int, incarnation: int, **fields: Any) -> Worker:
    pid = 1000 + 100 * index + incarnation
    worker = Worker(Process(pid, pid, 1, "S", ("server",), {}), index, 0, incarnation, False, True)
    return replace(worker, **fields)


def _line(reason: str, message: str, at: float = 0.0, subject: str = "slice 0") -> Line:
    fields = {"time": at, "reason": reason, "subject": subject, "message": message}
    return Line(f'"reason": "{reason}", "subject": "{subject}", "{message}"', fields)


def _judge(seen: Sequence[Sighting], causes: Causes | None = None) -> list[int]:
    """The invariants that are violated, once for each violation."""
    rules = all_rules(_BOUNDS, causes or Causes(), _REASONS)
    return [rule.invariant for one in seen for rule in rules for _ in rule.look(one)]


def _over_time(seconds: int, seen: Sighting, begin: float = 100.0) -> list[Sighting]:
    """The same, looked at once a second."""
    first = replace(seen, time=begin)
    return [first] + [replace(seen, time=begin + s, lines=()) for s in range(1, seconds)]


def test_two_incarnations_may_overlap_only_for_a_while() -> None:
    both = Sighting(0.0, processes=(_ROOT,), workers=(_worker(0, 1), _worker(0, 2)))
    causes = Causes()
    causes.expect(0, 1, 0.0)
    assert _judge(_over_time(20, both), causes) == []
    assert _judge(_over_time(40, both), causes) == [1]


def test_a_stopped_worker_takes_no_part() -> None:
    old = _worker(0, 1, stopped=True)
    causes = Causes()
    causes.expect(0, 1, 0.0)
    both = Sighting(0.0, processes=(_ROOT,), workers=(old, _worker(0, 2)))
    assert _judge(_over_time(40, both), causes) == []


def test_the_announced_proxy_has_to_answer() -> None:
    announced = Sighting(0.0, processes=(_ROOT,), published=("127.0.0.1", 29000), answers=True)
    silent = replace(announced, answers=False)
    assert _judge(_over_time(100, announced)) == []
    assert _judge(_over_time(50, silent)) == []
    assert _judge(_over_time(100, silent)) == [2]
    assert (
        _judge([*_over_time(50, silent), *_over_time(50, replace(silent, published=None), 150)])
        == []
    )


def test_a_file_that_names_no_proxy_is_no_better_than_a_silent_one() -> None:
    assert _judge(_over_time(100, Sighting(0.0, processes=(_ROOT,), published=("", 0)))) == [2]


def test_nothing_may_outlive_the_service() -> None:
    left = Sighting(0.0, processes=(Process(7, 7, 1, "S", ("srun",), {}),))
    assert _judge(_over_time(50, left)) == []
    assert _judge(_over_time(100, left)) == [3]
    task = Sighting(0.0, tasks=(Task("4", 0, "run", "RUNNING", 0),))
    assert _judge(_over_time(100, task)) == [3]
    ended = Sighting(0.0, tasks=(Task("4", 0, "run", "COMPLETED", 0),))
    assert _judge(_over_time(100, ended)) == []


def test_the_time_without_a_scheduler_does_not_count_for_the_end() -> None:
    left = Process(7, 7, 1, "S", ("srun",), {})
    blind = Sighting(0.0, processes=(left,), tasks=None)
    assert _judge(_over_time(100, blind)) == []
    assert _judge([*_over_time(100, blind), *_over_time(100, replace(blind, tasks=()), 200)]) == [3]


def test_the_address_may_not_outlive_the_service() -> None:
    left = Sighting(0.0, published=("127.0.0.1", 29000), answers=True)
    assert _judge(_over_time(100, left)) == [2]


def test_nothing_is_concluded_from_silence() -> None:
    causes = Causes()
    causes.expect(0, 9, 0.0)
    blind = _over_time(40, Sighting(0.0, processes=(_ROOT,), tasks=None))
    blind[20] = replace(blind[20], lines=(_line("SliceLost", "slice 0 lost: silence", 120.0),))
    assert _judge(blind, causes) == [4]
    # What the scheduler said a moment before may still be acted on.
    blind[20] = replace(blind[20], lines=(_line("SliceLost", "slice 0 lost: ended", 103.0),))
    assert _judge(blind, causes) == []
    # The scheduler was back before we had its answer.
    blind[20] = replace(blind[20], lines=(_line("SliceLost", "slice 0 lost: ended", 120.0),))
    blind[22:] = [replace(one, tasks=()) for one in blind[22:]]
    assert _judge(blind, causes) == []


def test_a_restart_needs_a_cause() -> None:
    def ran(restarts: int) -> Sighting:
        return Sighting(0.0, processes=(_ROOT,), tasks=(Task("4", 0, "r", "RUNNING", restarts),))

    causes = Causes()
    causes.expect(0, 1, 0.0)
    seen = [*_over_time(3, ran(0)), *_over_time(3, ran(1), 110), *_over_time(3, ran(2), 120)]
    assert _judge(seen[:6], causes) == []
    assert _judge(seen, causes) == [4]


def test_a_slice_that_is_declared_lost_needs_a_cause() -> None:
    lines = (_line("SliceLost", "slice 0 lost: who knows"),)
    assert _judge([Sighting(1.0, processes=(_ROOT,), lines=lines)]) == [4]


def test_workers_without_their_manager_have_a_cause_to_end() -> None:
    alone = _worker(0, 1, connected=False)
    seen = _over_time(12, Sighting(0.0, processes=(_ROOT,), workers=(alone,)))
    again = _over_time(3, Sighting(0.0, processes=(_ROOT,), workers=(_worker(0, 2),)), 120)
    assert _judge([*seen, *again]) == []
    assert _judge([*seen[:3], *again]) == [4]


def test_one_slice_has_one_task() -> None:
    one, other = Task("4", 0, "run-0", "RUNNING", 0), Task("5", 0, "run-1", "PENDING", 0)
    assert _judge(_over_time(3, Sighting(0.0, processes=(_ROOT,), tasks=(one, other)))) == [5]
    ended = replace(one, state="FAILED")
    assert _judge(_over_time(3, Sighting(0.0, processes=(_ROOT,), tasks=(ended, other)))) == []
    third = replace(other, index=1)
    assert _judge(_over_time(3, Sighting(0.0, processes=(_ROOT,), tasks=(one, third)))) == []


@pytest.mark.parametrize(("every_s", "found"), [(10, [6]), (40, [])])
def test_components_keep_their_budget(every_s: int, found: list[int]) -> None:
    argv = ("server", "--node_type=resource_manager")
    seen: list[Sighting] = []
    for number in range(4):
        rm = Process(100 + number, number, 1, "S", argv, {})
        seen += _over_time(5, Sighting(0.0, processes=(_ROOT, rm)), 100.0 + every_s * number)
    assert _judge(seen) == found


@pytest.mark.parametrize(("free", "found"), [(0, [6]), (1, [])])
def test_slices_keep_their_budget_and_orders_are_free(free: int, found: list[int]) -> None:
    causes = Causes()
    causes.expect(0, 3 - free, 100.0)
    causes.expect(0, free, 100.0, free=True)
    seen = [
        Sighting(100.0 + n, processes=(_ROOT,), tasks=(Task("4", 0, "r", "RUNNING", n),))
        for n in range(4)
    ]
    assert _judge(seen, causes) == found


@pytest.mark.parametrize(
    ("message", "found"),
    [
        ("the IFRT proxy is gone, and its restart budget has run out", [6]),
        ("its restart budget has run out (5 of 5 used in the last 600 s)", []),
        ("not ready 60 s after the start (PATHWAYS_START_TIMEOUT_S=60)", []),
    ],
)
def test_exhaustion_is_named(message: str, found: list[int]) -> None:
    line = _line("BudgetExhausted", message)
    assert _judge([Sighting(1.0, processes=(_ROOT,), lines=(line,))]) == found
    slices = [{"index": 0, "state": "FAILED", "reason": message}]
    seen = Sighting(1.0, processes=(_ROOT,), status={"slices": slices})
    assert _judge([seen, seen]) == found


@pytest.mark.parametrize(
    "line",
    [
        Line("{torn", None),
        _line("Whatever", "slice 0 is not well"),
        _line("SliceRequeued", ""),
        _line("SliceRequeued", "Word"),
        _line("SliceRequeued", "two\nlines"),
        _line("SliceRequeued", "slice 0 requeued", subject=""),
    ],
)
def test_each_event_has_a_known_word_and_a_sentence(line: Line) -> None:
    assert _judge([Sighting(1.0, processes=(_ROOT,), lines=(line,))]) == [7]


def test_each_slice_that_is_not_ready_has_a_reason() -> None:
    slices = [
        {"index": 0, "state": "READY", "reason": ""},
        {"index": 1, "state": "PENDING", "reason": "Resources"},
    ]
    well = Sighting(1.0, processes=(_ROOT,), status={"slices": slices})
    assert _judge([well]) == []
    slices[1]["reason"] = " "
    assert _judge([well, well]) == [7], "it is said once"


# ---------------------------------------------------------------- the looks, at what is really


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
