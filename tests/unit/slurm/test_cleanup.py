# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""slurm_cleanup.py: how the job is asked for that ends what a service has left."""

import os
import pwd
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import IO

import pytest
from tests.unit.slurm.support import SILENCE, programs

from pathways_slurm.scheduler.base import SchedulerError, SchedulerUnavailable
from pathways_slurm.scheduler.slurm_cleanup import CleanupJob
from pathways_slurm.scheduler.slurm_command import Completed, SlurmClient
from pathways_slurm.scheduler.slurm_service_job import ServiceJob

COMMAND = ("/a place/pathways-slurm", "down", "--of-job=40")


class Runner:
    """Remembers one command and answers it."""

    def __init__(self, code: int | None = 0, out: str = "41\n", err: str = "") -> None:
        self.answer = (code, out, err)
        self.argv: tuple[str, ...] = ()
        self.environment: Mapping[str, str] = {}

    def __call__(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        timeout_s: float,
        *,
        output: IO[bytes] | None = None,
        keep: Collection[int] = (),
    ) -> Completed:
        del timeout_s, output, keep
        self.argv = (Path(argv[0]).name, *argv[1:])
        self.environment = environment
        return Completed(tuple(argv), *self.answer)


def job(directory: Path, runner: Runner, service: str = "", **variables: str) -> CleanupJob:
    environment = {"PATH": programs(directory / "bin"), **variables}
    client = SlurmClient(5.0, environment, runner)
    return CleanupJob(ServiceJob("40", 0), service, client, environment)


def test_it_runs_where_the_service_does_once_that_has_ended_however_it_ends(
    tmp_path: Path,
) -> None:
    runner = Runner()
    cleanup = job(
        tmp_path,
        runner,
        SLURM_JOB_PARTITION="cpu",
        SLURM_JOB_ACCOUNT="lab",
        SLURM_JOB_ID="40",
        SLURM_CONF="/etc/here.conf",
        SBATCH_EXCLUSIVE="1",
    )
    booked = cleanup.book(COMMAND, {"PATHWAYS_HOME": "/h"}, tmp_path / "50%" / "cleanup.log")
    assert booked == "41"
    assert runner.argv[0] == "sbatch"
    assert {
        "--dependency=afterany:40",
        "--job-name=pathways-cleanup-40",
        "--partition=cpu",
        "--account=lab",
        f"--output={tmp_path}/50%%/cleanup.log",
        "--wrap=exec '/a place/pathways-slurm' down --of-job=40",
    } <= set(runner.argv)
    assert not [word for word in runner.argv if word.startswith(("--qos", "--reservation"))]
    # Nothing of the service's own job becomes an option of this one.
    assert {name for name in runner.environment if name.startswith(("SLURM", "SBATCH"))} == {
        "SLURM_CONF"
    }
    assert runner.environment["PATHWAYS_HOME"] == "/h"


def test_what_slurm_does_not_take_is_told_from_what_it_does_not_answer(tmp_path: Path) -> None:
    refused = Runner(1, "", "sbatch: error: Batch job submission failed: Invalid account")
    with pytest.raises(SchedulerError, match=r"pathways-cleanup-40 was not taken.*Invalid account"):
        job(tmp_path / "a", refused).book(COMMAND, {}, tmp_path / "log")
    with pytest.raises(SchedulerUnavailable, match="no answer"):
        job(tmp_path / "b", Runner(None)).book(COMMAND, {}, tmp_path / "log")
    with pytest.raises(SchedulerUnavailable, match="scancel"):
        job(tmp_path / "c", Runner(1, "", SILENCE)).cancel()


def test_only_jobs_of_that_name_and_user_are_looked_for_and_cancelled(tmp_path: Path) -> None:
    user = pwd.getpwuid(os.getuid()).pw_name
    runner = Runner(out="")
    one = job(tmp_path, runner, "blue")
    assert not one.is_booked()
    named = [f"--user={user}", "--name=pathways-cleanup-40-blue"]
    assert runner.argv == ("squeue", "--noheader", *named, "--format=%i")
    runner.answer = (0, "41\n", "")
    assert one.is_booked()
    one.cancel()
    assert runner.argv == ("scancel", *named)
