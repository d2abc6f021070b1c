# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The job that Slurm starts when a service's own has ended, and what is then left to it."""

import contextlib
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
from tests.e2e.service import wait_until
from tests.slurm.service.service import LIVE, SlurmService


def _cleanup(service: SlurmService, job: str) -> list[dict[str, Any]]:
    """The jobs that are to clean up after a service's job and have not ended."""
    name = f"pathways-cleanup-{job}"
    return [row for row in service.queue() if row["name"] == name and row["state"] in LIVE]


def _kill_all(service: SlurmService, job: str) -> None:
    """What Slurm does with a job that has not ended in time: nothing of it is left to act."""
    status = service.status()
    guards = [pid for pid, argv in service.processes().items() if "pathways_slurm.guard" in argv]
    assert guards
    # The guards first: they would do something about the rest.
    for pid in (
        *guards,
        service.batch_pid(),
        service.pid_of("supervise"),
        status["rm"]["pid"],
        status["proxy"]["pid"],
    ):
        # The kernel may have done so already, as the guard was this one's parent.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    wait_until(lambda: service.job_state(job) not in LIVE, 60.0, service.logs, 0.2)


def test_it_waits_as_long_as_the_service_is_there_and_goes_with_it(service: SlurmService) -> None:
    job = service.sbatch()
    service.wait_for("READY", timeout_s=60)
    (waiting,) = _cleanup(service, job)
    assert waiting["state"] == "PENDING"
    service.cluster.run("scancel", job)
    service.expect_nothing_left()
    wait_until(lambda: not _cleanup(service, job), 30.0, "it is cancelled", 0.2)
    assert not (service.home / "logs" / "cleanup.log").exists(), "it has run"


@pytest.mark.timeout(300)
def test_it_ends_all_that_a_killed_service_leaves_and_leaves_the_next_one_alone(
    make: Callable[..., SlurmService],
) -> None:
    """Also what only waits in the queue, of which no process knows: one slice more than fit."""
    service = make(MAX_SLICES="4")
    job = service.sbatch()
    service.wait_for("READY", timeout_s=60)
    service.wait_for_slice(2, "READY")
    assert service.status()["slices"][3]["state"] == "PENDING"
    _kill_all(service, job)
    service.expect_nothing_left()
    wait_until(lambda: not _cleanup(service, job), 60.0, "it has ended", 0.2)
    status = service.status()
    assert (status["service"], status["reason"]) == ("STOPPED", f"its job {job} has ended")

    first = service.sbatch()
    service.wait_for("READY", timeout_s=60)
    _kill_all(service, first)
    second = service.sbatch()
    service.wait_for("READY", timeout_s=100)
    wait_until(lambda: not _cleanup(service, first), 60.0, "it has ended", 0.2)
    assert service.job_state(second) == "RUNNING"
    assert service.status()["service"] in ("READY", "DEGRADED")
    assert {row["state"] for row in _cleanup(service, second)} == {"PENDING"}
