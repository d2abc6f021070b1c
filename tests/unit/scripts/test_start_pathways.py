# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""start_pathways.sh: the environment that the service runs with, found from Slurm's copy of it."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "start_pathways.sh"


class Job:
    """The script as Slurm runs it: a copy elsewhere, and a scontrol that knows the job."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.environment = directory / "an environment"
        self.copy = directory / "slurm_script"
        shutil.copy(SCRIPT, self.copy)
        self.program(self.environment / "bin" / "pathways-slurm", 'echo "${0%/*}" "$@"')
        self.program(self.environment / "bin" / "python", "exit 1")
        (self.environment / "stamp").write_text("project 1f\n")
        self.submitted(SCRIPT)

    def submitted(self, script: Path) -> None:
        self.program(self.directory / "bin" / "scontrol", f"echo '   Command={script}'")

    def program(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def run(self, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", self.copy],
            env={
                "PATH": f"{self.directory / 'bin'}:{os.environ['PATH']}",
                "SLURM_JOB_ID": "44",
                "SLURM_SUBMIT_DIR": "/",
                "PATHWAYS_ENVIRONMENT": str(self.environment),
                **variables,
            },
            cwd="/",
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def test_the_supervisor_is_that_of_the_environment(job: Job) -> None:
    done = job.run()
    assert (done.returncode, done.stdout) == (0, f"{job.environment}/bin supervise\n"), done.stderr


def test_an_environment_that_is_not_complete_is_named_with_what_finishes_it(job: Job) -> None:
    (job.environment / "stamp").unlink()
    done = job.run()
    assert (done.returncode, done.stdout) == (2, "")
    assert f"PATHWAYS_ENVIRONMENT is {job.environment}, which is no complete" in done.stderr
    assert f"{SCRIPT.parent}/setup_env.sh" in done.stderr


def test_a_copy_of_the_script_outside_a_checkout_is_refused(job: Job) -> None:
    script = job.directory / "scripts" / "start_pathways.sh"
    script.parent.mkdir()
    shutil.copy(SCRIPT, script)
    job.submitted(script)
    done = job.run()
    assert done.returncode == 2
    assert "is no part of a checkout" in done.stderr
    assert "submit the checkout's own file" in done.stderr


@pytest.mark.parametrize(("failures", "code"), [(2, 0), (10, 1)])
def test_a_slurmctld_that_is_away_for_a_moment_does_not_end_the_service(
    job: Job, failures: int, code: int
) -> None:
    looks = job.directory / "looks"
    job.program(
        job.directory / "bin" / "scontrol",
        f"echo look >>'{looks}'; [ $(wc -l <'{looks}') -gt {failures} ] || exit 1\n"
        f"echo '   Command={SCRIPT}'",
    )
    job.program(job.directory / "bin" / "sleep", f"echo $1 >>'{job.directory}/waits'")
    done = job.run()
    assert done.returncode == code
    waits = (job.directory / "waits").read_text().split()
    assert waits == ["10"] * min(failures, 9)
    assert ("slurmctld does not answer" in done.stderr) is (code == 1)


@pytest.mark.parametrize(
    ("budget", "window", "starts"), [("2", "60", 3), ("1.0", "6e2", 2), ("x", "-1", 6)]
)
def test_a_supervisor_that_keeps_dying_is_started_within_its_budget(
    job: Job, budget: str, window: str, starts: int
) -> None:
    job.program(
        job.environment / "bin" / "pathways-slurm",
        f"echo \"$@\" >>'{job.directory}/calls'; [ $1 = down ] || exit 70",
    )
    done = job.run(PATHWAYS_RESTART_BUDGET=budget, PATHWAYS_RESTART_WINDOW_S=window)
    assert done.returncode == 1
    calls = (job.directory / "calls").read_text().splitlines()
    assert calls == ["supervise"] * starts + ["down --of-job=44"]
