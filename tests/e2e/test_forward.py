# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""A planned loss that is the program's to handle: it costs no step and no budget."""

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.service import ServiceUnderTest, output_of
from tests.e2e.training import PATIENCE_S, PROGRAM, SMALL, Training, losses, read


@pytest.fixture
def forwarding(tmp_path: Path) -> Iterator[ServiceUnderTest]:
    """Three slices that programs leave at a notice; no failure of one would be forgiven."""
    under_test = ServiceUnderTest(
        tmp_path / "home",
        MIN_SLICES="2",
        PATHWAYS_ON_NOTICE="forward",
        PATHWAYS_NOTICE_S="300",
        PATHWAYS_SLICE_RESTART_BUDGET="0",
    )
    yield under_test
    under_test.close()


def undisturbed(steps: int, directory: Path) -> dict[int, float]:
    """Losses of the same run on one CPU device, without any service."""
    metrics = directory / "undisturbed"
    subprocess.run(
        [sys.executable, PROGRAM, *SMALL, "--steps", str(steps), "--metrics", metrics],
        env={"PATH": os.environ["PATH"], "JAX_PLATFORMS": "cpu"},
        stdout=subprocess.DEVNULL,
        timeout=PATIENCE_S,
        check=True,
    )
    return losses(read(metrics))


@pytest.mark.timeout(900)
def test_training_leaves_a_slice_at_its_notice_and_uses_it_again_without_losing_a_step(
    forwarding: ServiceUnderTest, tmp_path: Path
) -> None:
    forwarding.up()
    # No snapshot is due for long, so that a step would be lost if there was none at the notice.
    options = ("--steps", "100000", "--snapshot-period", "100000", "--min-step-time", "0.05")
    training = Training(forwarding, *SMALL, *options)
    training.wait_for_steps(5, [0, 1, 2])
    training.signal_worker(1, signal.SIGTERM)
    after = forwarding.wait_for_slice(1, "READY", above=1, timeout_s=PATIENCE_S)
    assert after["incarnation"] == 2
    training.wait_for_steps(5, [0, 1, 2])
    training.process.send_signal(signal.SIGTERM)
    output = output_of(training.process)
    assert training.process.returncode == 128 + signal.SIGTERM, output

    steps = [e for e in training.events if e["event"] == "step"]
    assert [e["step"] for e in steps] == list(range(1, 1 + len(steps))), "each once, and in order"
    where = [slices for slices, _ in itertools.groupby(e["slices"] for e in steps)]
    assert where == [[0, 1, 2], [0, 2], [0, 1, 2]]
    assert [e for e in training.events if e["event"] == "error"] == []
    assert losses(steps) == pytest.approx(undisturbed(len(steps), tmp_path), rel=1e-4)
    about = [e for e in forwarding.events() if e["subject"] == "slice 1"]
    assert "SliceLost" not in [e["reason"] for e in about]
    (gone,) = (e for e in about if e["reason"] == "SliceGone")
    # Otherwise it would have had to wait for the end of its 300 s.
    assert "its programs have left it" in gone["message"]
