# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The example program through a service: what a lost slice costs, and what it does not change."""

import os
import signal
import subprocess
import sys

import pytest
from tests.e2e.service import ServiceUnderTest, output_of, wait_until
from tests.e2e.training import PATIENCE_S, PROGRAM, SMALL, STEPS, Training, losses, read

# Slow enough for slices to be back before all steps are taken.
OPTIONS = (*SMALL, "--min-step-time", "0.2")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[int, float]:
    """Losses of the same run on one CPU device, without any service."""
    metrics = tmp_path_factory.mktemp("undisturbed") / "metrics"
    subprocess.run(
        [sys.executable, PROGRAM, *SMALL, "--steps", str(STEPS), "--metrics", metrics],
        env={"PATH": os.environ["PATH"], "JAX_PLATFORMS": "cpu"},
        stdout=subprocess.DEVNULL,
        timeout=PATIENCE_S,
        check=True,
    )
    return losses(read(metrics))


@pytest.mark.timeout(900)
def test_slices_lost_one_after_the_other_change_no_loss(
    service: ServiceUnderTest, undisturbed: dict[int, float]
) -> None:
    service.up()
    training = Training(service, *OPTIONS)
    # Slice 0 first: its devices are JAX's default ones, and those that a save reads from.
    for victim in (0, 2):
        training.wait_for_steps(5, [0, 1, 2])
        training.kill_worker(victim)
        training.wait_to_have_used([i for i in range(3) if i != victim])
    training.wait_for_steps(3, [0, 1, 2])

    output = output_of(training.process)
    assert training.process.returncode == 0, output
    events = read(training.metrics)
    assert losses(events) == pytest.approx(undisturbed, rel=1e-4)
    errors = [e["message"] for e in events if e["event"] == "error"]
    assert [message.split(":")[:2] for message in errors] == [
        ["DATA_LOSS", " slice 0"],
        ["DATA_LOSS", " slice 2"],
    ]
    assert "Traceback" not in output


@pytest.mark.timeout(900)
def test_fewer_slices_than_needed_are_waited_for(service: ServiceUnderTest) -> None:
    service.up()
    training = Training(service, *OPTIONS, "--min-slices", "3")
    training.wait_for_steps(3, [0, 1, 2])
    training.kill_worker(1)
    wait_until(
        lambda: [e for e in read(training.metrics) if e["event"] == "error"], 30, "the loss is seen"
    )
    training.wait_for_steps(3, [0, 1, 2])
    active = [e["active"] for e in read(training.metrics) if e["event"] == "slices"]
    assert active == [[0, 1, 2], [0, 1, 2]]
    training.process.send_signal(signal.SIGTERM)
    output = output_of(training.process)
    assert training.process.returncode == 128 + signal.SIGTERM
    assert "stopped by SIGTERM after step" in output


@pytest.mark.timeout(900)
def test_end_of_the_service_ends_the_program_with_a_message(service: ServiceUnderTest) -> None:
    service.up()
    training = Training(service, *OPTIONS)
    training.wait_for_steps(3, [0, 1, 2])
    assert service.run("down").returncode == 0
    output = output_of(training.process)
    assert training.process.returncode == 1
    # JAX's client adds its own errors on stderr, at whatever moment its connection breaks.
    said = [line for line in output.splitlines() if line.startswith("failed after step")]
    assert len(said) == 1, output
