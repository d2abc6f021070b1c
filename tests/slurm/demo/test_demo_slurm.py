# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""scripts/demo.sh --slurm as a user runs it: to its end, interrupted, and killed."""

import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from slurm.devcluster import lifecycle
from tests.e2e.demo import Demo
from tests.e2e.service import wait_until

PATIENCE_S = 200.0


@pytest.fixture
def demo() -> Iterator[Callable[..., Demo]]:
    """Starts a demo; whatever is left of it is killed at the end."""
    started: list[Demo] = []

    # pytest's directories have names too long for the sockets of Slurm's daemons.
    with tempfile.TemporaryDirectory(prefix="d-") as path:

        def start(*options: str) -> Demo:
            started.append(Demo(Path(path), "--slurm", *options))
            return started[-1]

        yield start
        for each in started:
            homes = each.homes
            each.close()
            for home in homes:
                lifecycle.down(home / "slurm")


def tasks(run: Demo) -> dict[int, tuple[str, int]]:
    """The demo's array tasks in its Slurm's queue: index → state and count of restarts."""
    (home,) = run.homes
    done = subprocess.run(
        ["squeue", "-h", "-r", "-t", "all", "-O", "ArrayTaskID:0|,State:0|,RestartCnt:0|"],
        env=lifecycle.client_environment(home / "slurm/slurm.conf", os.environ),
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    rows = [line.split("|") for line in done.stdout.splitlines()]
    return {int(i): (state, int(count)) for i, state, count, *_ in rows if i.strip().isdigit()}


def workers(run: Demo) -> dict[tuple[int, int], int]:
    """The workers by slice and host, as far as they can be seen in /proc: their pids."""
    found = {}
    for process in run.processes("server"):
        try:
            environ = process.environ()
        except psutil.Error:
            continue
        if "PATHWAYS_HOST_INDEX" in environ:
            place = int(environ["PATHWAYS_SLICE_INDEX"]), int(environ["PATHWAYS_HOST_INDEX"])
            found[place] = process.pid
    return found


@pytest.mark.timeout(PATIENCE_S + 60)
def test_demo_succeeds(demo: Callable[..., Demo]) -> None:
    run = demo("--slices", "2")
    run.wait_to_say("first step on all", PATIENCE_S)
    before = workers(run)
    assert before.keys() == {(i, h) for i in range(2) for h in range(2)}
    assert tasks(run) == {0: ("RUNNING", 0), 1: ("RUNNING", 0)}
    run.wait_to_say("all 2 slices train again", PATIENCE_S)
    after = workers(run)
    # One worker was killed, its slice was requeued by Slurm, the other slice did not notice.
    assert tasks(run) == {0: ("RUNNING", 0), 1: ("RUNNING", 1)}
    killed = re.search(r"kill -9 of pid (\d+), the worker on", run.output)
    assert killed is not None, run.output
    assert int(killed[1]) == before[1, 1]
    assert [after[0, h] for h in range(2)] == [before[0, h] for h in range(2)]
    assert not {after[1, h] for h in range(2)} & set(before.values())

    assert run.wait(PATIENCE_S) == 0, run.output
    summary = run.summary
    assert summary["ok"] is True
    assert (summary["slices"], summary["killed_slice"], summary["steps"]) == (2, 1, 150)
    assert summary["slurm_restarts"] == 1
    assert 0 < summary["resumed_after_s"] < summary["full_mesh_after_s"]
    assert 0 < summary["slice_back_after_s"] < summary["full_mesh_after_s"]
    assert summary["loss_last"] < 0.5 * summary["loss_first"]
    assert "✗" not in run.output
    assert run.processes() == []
    assert run.homes == []


@pytest.mark.parametrize(
    ("moment", "signum"),
    [
        ("starting Slurm", signal.SIGINT),
        ("starting the service", signal.SIGTERM),
        ("slice 1 killed", signal.SIGINT),
    ],
)
@pytest.mark.timeout(PATIENCE_S)
def test_interrupted_demo_leaves_nothing(
    demo: Callable[..., Demo], moment: str, signum: signal.Signals
) -> None:
    run = demo("--slices", "2", "--slice-shape", "2x2")
    run.wait_to_say(moment, 150)
    os.killpg(run.process.pid, signum)  # as a terminal does
    assert run.wait() == 128 + signum, run.output
    assert "✓ everything was brought down" in run.output
    assert run.summary["ok"] is False
    assert run.summary["slurm_restarts"] is None
    assert run.processes() == []
    assert run.homes == []


@pytest.mark.timeout(PATIENCE_S)
def test_slurm_ends_with_a_driver_that_is_killed(demo: Callable[..., Demo]) -> None:
    run = demo("--slices", "2")
    run.wait_to_say("service up after", 90)
    run.process.kill()
    wait_until(lambda: not run.processes(), 90, "nothing is left")
    (home,) = run.homes
    assert not (home / "cluster.env").exists()
    # What Slurm's daemons have logged is left for whoever wants to know.
    assert (home / "slurm/controller/slurmctld.log").exists()
    assert not (home / "slurm/slurm.conf").exists()
