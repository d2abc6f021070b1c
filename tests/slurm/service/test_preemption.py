# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Slices that jobs of a higher priority push off their nodes, and that return when these end."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from slurm.devcluster.cluster import DevCluster
from slurm.devcluster.options import Options
from tests.e2e.service import wait_until
from tests.e2e.training import PACED, SMALL, STEPS, Training, losses
from tests.slurm.service.preemption import Preemption
from tests.slurm.service.service import SlurmService

GRACE_S = 10
KILL_WAIT_S = 5
# A checkpoint takes longer than the steps between two, and what is shown here does without them.
OPTIONS = (*SMALL, "--checkpoint-period", "20")


@pytest.fixture
def preemptible(tmp_path: Path) -> Iterator[SlurmService]:
    """A service with two slices of two hosts on nodes that others have a better right to.

    Both slices must be there, and a single failure of one would end the service.
    """
    with tempfile.TemporaryDirectory(prefix="devcluster-") as path:
        options = Options(
            Path(path) / "c",
            slices=2,
            cred_expire_s=5,
            grace_time_s=GRACE_S,
            kill_wait_s=KILL_WAIT_S,
        )
        with DevCluster(options) as cluster:
            (tmp_path / "service").mkdir()
            service = SlurmService(
                tmp_path / "service" / "home",
                cluster,
                MIN_SLICES="2",
                PATHWAYS_SLURM_PARTITION="tpu-low",
                PATHWAYS_NOTICE_S=str(GRACE_S + KILL_WAIT_S - 2),
                PATHWAYS_SLICE_RESTART_BUDGET="0",
            )
            yield service
            service.close()


def _preempt(service: SlurmService, index: int, nodes: list[str], training: Training) -> None:
    """Takes the nodes of a slice away for a while, in which no step is taken."""
    preemption = Preemption(service, nodes)
    preemption.wait_until_it_runs()
    taken = losses(training.events)
    wait_until(lambda: _is_told(service, index, "SlicePending"), 60.0, service.logs())
    assert losses(training.events) == taken
    assert training.process.poll() is None
    preemption.end()
    wait_until(lambda: _is_told(service, index, "(incarnation 2)"), 120.0, service.logs())


def _is_told(service: SlurmService, index: int, words: str) -> bool:
    """Of a slice that has gone, in its events: to ask for the status takes CPU from the slices."""
    about = [e for e in service.events() if e["subject"] == f"slice {index}"]
    reasons = [e["reason"] for e in about]
    if "SliceGone" not in reasons:
        return False
    after = about[reasons.index("SliceGone") + 1 :]
    return any(words in f"{event['reason']} {event['message']}" for event in after)


@pytest.mark.timeout(900)
def test_training_computes_the_same_bits_when_two_slices_are_preempted(
    preemptible: SlurmService,
) -> None:
    service = preemptible
    service.sbatch()
    service.wait_for("READY", timeout_s=120)
    undisturbed = Training(service, *OPTIONS, name="undisturbed")
    undisturbed.expect_success()
    before = service.status()["slices"]

    training = Training(service, *OPTIONS, *PACED, name="preempted")
    for index, step in ((0, 20), (1, 40)):
        training.wait_for_step(step)
        _preempt(service, index, before[index]["nodes"], training)
    output = training.expect_success()
    for index, after in enumerate(service.status()["slices"]):
        assert (after["incarnation"], after["nodes"]) == (2, before[index]["nodes"])

    assert len(losses(training.events)) == STEPS
    assert losses(training.events) == losses(undisturbed.events)
    assert training.told == undisturbed.told
    assert "Traceback" not in output
    for index in (0, 1):
        about = [e for e in service.events() if e["subject"] == f"slice {index}"]
        reasons = [e["reason"] for e in about]
        # Saved within milliseconds, it may have gone before the supervisor looks.
        of_its_end = [r for r in reasons[reasons.index("SliceReady") + 1 :] if r != "SliceNotice"]
        assert of_its_end[0] == "SliceGone"
        assert "SliceLost" not in reasons
        (gone,) = (e for e in about if e["reason"] == "SliceGone")
        assert "got SIGTERM" in gone["message"]
        assert "saved" in gone["message"]
    assert {row["restarts"] for row in service.tasks()} == {"1"}
    bucket = Path(service.settings["GCS_BUCKET"])
    assert [path for path in bucket.rglob("*") if not path.is_dir()] == []
