# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Slices that go after notice and return: a training program sees a pause, and no other bit."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.service import ServiceUnderTest
from tests.e2e.training import PACED, SMALL, STEPS, Training, losses

# A checkpoint takes longer than the steps between two, and what is shown here does without them.
OPTIONS = (*SMALL, "--checkpoint-period", "20")


@pytest.fixture
def unforgiving(tmp_path: Path) -> Iterator[ServiceUnderTest]:
    """Three slices, all of which must be there; a single failure of one ends the service."""
    under_test = ServiceUnderTest(
        tmp_path / "home", MIN_SLICES="3", PATHWAYS_SLICE_RESTART_BUDGET="0"
    )
    yield under_test
    under_test.close()


@pytest.mark.timeout(600)
def test_training_computes_the_same_bits_when_two_slices_are_suspended(
    unforgiving: ServiceUnderTest,
) -> None:
    unforgiving.up()
    undisturbed = Training(unforgiving, *OPTIONS, name="undisturbed")
    undisturbed.expect_success()
    before = unforgiving.status()["slices"]

    training = Training(unforgiving, *OPTIONS, *PACED, name="suspended")
    for index, step in ((1, 20), (2, 40)):
        training.wait_for_step(step)
        os.kill(before[index]["hosts"][0]["pid"], signal.SIGTERM)
        after = unforgiving.wait_for_slice(index, "READY", above=1)
        assert after["incarnation"] == 2
    output = training.expect_success()

    assert len(losses(training.events)) == STEPS
    assert losses(training.events) == losses(undisturbed.events)
    # Nothing but what the other run has told: no error, no new mesh, no checkpoint, no step twice.
    assert training.told == undisturbed.told
    assert "Traceback" not in output
    for index in (1, 2):
        about = [e for e in unforgiving.events() if e["subject"] == f"slice {index}"]
        reasons = [e["reason"] for e in about]
        # Saved within milliseconds, it may have gone before the supervisor looks.
        of_its_end = [r for r in reasons[reasons.index("SliceReady") + 1 :] if r != "SliceNotice"]
        assert of_its_end[0] == "SliceGone"
        assert "SliceLost" not in reasons
        (gone,) = (e for e in about if e["reason"] == "SliceGone")
        assert "got SIGTERM" in gone["message"]
        assert "saved" in gone["message"]
        assert _is_between_steps(gone["time"], training)
    # The first slice is the one that nobody touched.
    assert unforgiving.status()["slices"][0] == before[0]
    assert _files_below(Path(unforgiving.settings["GCS_BUCKET"])) == []


@pytest.mark.timeout(600)
def test_a_program_that_starts_while_a_slice_is_suspended_uses_the_others_until_it_is_back(
    service: ServiceUnderTest,
) -> None:
    service.up()
    for index in range(3):
        service.wait_for_slice(index, "READY")
    early = Training(service, *OPTIONS, *PACED, name="early")
    early.wait_for_step(10)
    down = service.run("maintenance", "1", "--wait", "60s", timeout_s=120.0)
    assert down.returncode == 0, down.stdout + down.stderr + service.logs()
    assert service.status()["slices"][1]["state"] == "MAINTENANCE"

    late = Training(service, *OPTIONS, *PACED, "--steps", "100000", name="late")
    late.wait_to_have_used([0, 2])
    assert early.process.poll() is None
    assert service.run("maintenance", "--done", "1").returncode == 0
    late.wait_to_have_used([0, 1, 2])
    early.expect_success()
    # It waited for the slice, and nothing else: no other mesh, and no step twice.
    steps = [event for event in early.events if event["event"] == "step"]
    numbers = [event["step"] for event in steps]
    assert len(numbers) == STEPS
    assert numbers == sorted(set(numbers))
    assert {tuple(event["slices"]) for event in steps} == {(0, 1, 2)}


def _is_between_steps(moment: float, training: Training) -> bool:
    times = [e["time"] for e in training.events if e["event"] == "step"]
    return bool(times[0] < moment < times[-1])


def _files_below(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if not path.is_dir()]
