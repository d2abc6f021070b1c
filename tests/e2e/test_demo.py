# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""scripts/demo.sh as a user runs it: to its end, to a failure, and interrupted."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.e2e.demo import Demo
from tests.e2e.service import wait_until


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Callable[..., Demo]]:
    """Starts demos; whatever is left of them is killed at the end."""
    started: list[Demo] = []

    def start(*options: str) -> Demo:
        started.append(Demo(tmp_path, *options))
        return started[-1]

    yield start
    for each in started:
        each.close()


@pytest.mark.parametrize(
    ("options", "slices"),
    [((), 3), (("--slices", "4", "--slice-shape", "2x4"), 4)],
    ids=["three slices", "four slices of two hosts"],
)
@pytest.mark.timeout(240)  # a minute where nothing else runs, most of it the compiler's
def test_demo_succeeds(demo: Callable[..., Demo], options: tuple[str, ...], slices: int) -> None:
    run = demo(*options)
    assert run.wait(220.0) == 0, run.output
    summary = run.summary
    assert summary["ok"] is True
    assert (summary["slices"], summary["killed_slice"], summary["steps"]) == (slices, 1, 150)
    assert 0 < summary["resumed_after_s"] < summary["full_mesh_after_s"]
    assert 0 < summary["slice_back_after_s"] < summary["full_mesh_after_s"]
    # Steps go on until the kill, and the last checkpoint may not have been committed by then.
    assert 0 <= summary["steps_lost"] <= 20
    assert summary["loss_last"] < 0.5 * summary["loss_first"]
    assert "✗" not in run.output
    assert run.homes == []
    assert run.processes() == []


@pytest.mark.parametrize(
    ("moment", "signum"),
    [
        ("starting the service", signal.SIGINT),
        ("service up after", signal.SIGTERM),
        ("slice 1 killed", signal.SIGINT),
    ],
)
def test_interrupted_demo_leaves_nothing(
    demo: Callable[..., Demo], moment: str, signum: signal.Signals
) -> None:
    run = demo("--slices", "2")
    run.wait_to_say(moment)
    os.killpg(run.process.pid, signum)  # as a terminal does
    assert run.wait() == 128 + signum, run.output
    assert "everything was brought down" in run.output
    assert run.summary["ok"] is False
    assert run.processes() == []
    assert run.homes == []


def test_failure_of_training_is_told_and_its_logs_kept(demo: Callable[..., Demo]) -> None:
    run = demo("--slices", "2")
    run.wait_to_say("training on slices")
    (program,) = [p for p in run.processes("--metrics") if "train_transformer" in p.cmdline()[1]]
    program.kill()
    assert run.wait() == 1
    assert "✗ the training program ended with exit code 137" in run.output
    assert "✗ training resumed" in run.output
    assert run.summary["ok"] is False
    assert run.processes() == []
    (home,) = run.homes
    assert f"logs and everything else: {home}" in run.output
    assert (home / "training.log").exists()
    assert not (home / "cluster.env").exists()


def test_service_ends_with_a_driver_that_is_killed(demo: Callable[..., Demo]) -> None:
    run = demo("--slices", "2")
    run.wait_to_say("first step on all")
    run.process.kill()
    wait_until(lambda: not run.processes(), 60, "nothing is left")
    (home,) = run.homes
    assert not (home / "cluster.env").exists()


def test_bad_options_are_refused_before_anything_starts(demo: Callable[..., Demo]) -> None:
    run = demo("--slices", "1", "--slice-shape", "3x3")
    assert run.wait() == 2
    assert "--slices must be >= 2" in run.output
    assert "--slice-shape: v6e has no slice shape 3x3" in run.output
    assert run.homes == []
    assert not run.summary_file.exists()
