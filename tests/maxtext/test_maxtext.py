# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The real MaxText, by the script that users run, on slices that go and jobs that are requeued."""

import math
import os
import re
import signal
from itertools import groupby
from pathlib import Path

import pytest
from tests.e2e.service import wait_until
from tests.maxtext.workload import (
    CHECKPOINTS,
    ENDLESS,
    MAXTEXT,
    MODEL,
    PATIENCE_S,
    PERIOD,
    Job,
    Process,
    Step,
)
from tests.slurm.service.service import SlurmService

pytestmark = pytest.mark.timeout(1800)


def _committed(directory: Path) -> list[int]:
    """The steps of the checkpoints that are whole, by what MaxText itself goes by."""
    found = directory.glob("checkpoints/*/commit_success*")
    return sorted(int(path.parent.name) for path in found if path.parent.name.isdigit())


def _expect_resumed(part: list[Step]) -> None:
    """MaxText saves the state after a step whose number is a multiple of the period."""
    first = part[0].number
    assert first > PERIOD
    assert first % PERIOD == 1


def test_maxtext_trains_to_its_end(service: SlurmService) -> None:
    with Process(service, MAXTEXT, *MODEL, "steps=5", "enable_checkpointing=false") as training:
        assert training.ended() == 0, training.tail()
    taken = training.steps
    assert [(step.number, step.slices) for step in taken] == [(n, 2) for n in range(5)]
    assert all(math.isfinite(step.loss) for step in taken)
    assert taken[-1].loss < taken[0].loss
    assert "elastic_min_slice_count=1 " in training.text


def test_maxtext_goes_on_without_a_slice_and_takes_it_back(service: SlurmService) -> None:
    with Process(service, MAXTEXT, *MODEL, *CHECKPOINTS, ENDLESS, "run_name=elastic") as training:
        before = training.wait_for_step(PERIOD + 5, slices=2)

        lost = service.wait_for_slice(1, "READY", timeout_s=PATIENCE_S)
        (node,) = lost["nodes"]
        # As long as its node is drained, it can't come back.
        service.cluster.run("scontrol", "update", f"nodename={node}", "state=drain", "reason=test")
        os.kill(service.worker_on(lost["hosts"][0]["address"]), signal.SIGKILL)
        without = training.wait_for_step(0, slices=1, after=len(before))
        service.cluster.run("scontrol", "update", f"nodename={node}", "state=resume")
        service.wait_for_slice(1, "READY", above=lost["incarnation"], timeout_s=PATIENCE_S)
        training.wait_for_step(0, slices=2, after=len(without))

        training.process.send_signal(signal.SIGTERM)
        assert training.ended() == 128 + signal.SIGTERM
    parts = [(slices, list(of)) for slices, of in groupby(training.steps, lambda s: s.slices)]
    assert [slices for slices, _ in parts] == [2, 1, 2]
    assert parts[0][1][0].number == 0
    for _, part in parts[1:]:
        _expect_resumed(part)
    assert all(math.isfinite(step.loss) for step in training.steps)


def test_a_job_that_has_to_end_is_requeued_and_resumes(service: SlurmService) -> None:
    job = Job(
        service,
        MAXTEXT,
        *(*MODEL, *CHECKPOINTS, ENDLESS),
        environ={"ENABLE_AUTOCHECKPOINT": "true", "EXIT_AFTER_AUTOCHECKPOINT": "true"},
    )
    first = job.wait_for_step(PERIOD + 5, slices=2)
    assert first[0].number == 0
    directory = service.home / "maxtext" / f"maxtext-{job.id}"
    wait_until(lambda: PERIOD in _committed(directory), PATIENCE_S, job.tail, 0.2)

    # As Slurm does it with --signal=B:USR1@120 when the time is nearly up. It ends MaxText.
    service.cluster.run("scancel", "--batch", "--signal=USR1", job.id)
    job.wait_for(f"job {job.id} was told that it must end; requeued, 1 of 100")
    before = len(job.steps)
    resumed = job.wait_for_step(0, slices=2, after=before)
    assert job.row["restarts"] == "1"
    _expect_resumed(resumed[before:])

    # SIGTERM has MaxText save the step that it is at.
    service.cluster.run("scancel", "--batch", "--signal=TERM", job.id)
    job.wait_for(f"job {job.id} was told that it must end; requeued, 2 of 100")
    (saved,) = re.findall(r"autocheckpoint: step (\d+) is committed", job.text)
    before = len(job.steps)
    resumed = job.wait_for_step(0, slices=2, after=before)
    assert job.row["restarts"] == "2"
    assert resumed[before].number == int(saved) + 1

    service.cluster.run("scancel", job.id)
    job.wait_for_state("CANCELLED", restarts=2)
    wait_until(lambda: not _maxtexts(service), PATIENCE_S, "MaxText has ended with its job")
    assert all(math.isfinite(step.loss) for step in job.steps)


def _maxtexts(service: SlurmService) -> list[str]:
    return [argv for argv in service.processes().values() if "maxtext.trainers" in argv]
