# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The checker sees what is there, finds what is wrong, and knows nothing of the project."""

import ast
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.chaos.judging import Bounds, Causes
from tests.chaos.rules import all_rules
from tests.chaos.sightings import Line, Process, Sighting, Task, Worker

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
    assert seen == {"checker", "judging", "restarts", "rules", "sightings"}


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


def test_a_slice_that_is_shown_as_ready_has_workers() -> None:
    supervisor = Process(2, 2, 1, "S", ("python", "supervise"), {})
    slices = [{"index": 0, "state": "READY", "reason": ""}]
    bare = Sighting(0.0, processes=(_ROOT, supervisor), status={"slices": slices})
    assert _judge(_over_time(100, bare)) == [0]
    assert _judge(_over_time(100, replace(bare, workers=(_worker(0, 1),)))) == []
    assert _judge(_over_time(100, replace(bare, tasks=None))) == []
    stopped = replace(supervisor, state="T")
    assert _judge(_over_time(100, replace(bare, processes=(_ROOT, stopped)))) == []


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
