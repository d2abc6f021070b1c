# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""slurm_command.py: real processes, and what Slurm's complaints mean."""

import os
import time
from pathlib import Path

import pytest

from pathways_slurm.scheduler.base import SchedulerUnavailable
from pathways_slurm.scheduler.slurm_command import (
    SlurmClient,
    is_unavailable,
    is_undelivered,
    run_command,
    without_slurm,
)

PATH = {"PATH": os.environ.get("PATH", os.defpath)}


def program(directory: Path, text: str, name: str = "squeue") -> SlurmClient:
    """A client for which ``name`` is this bash script."""
    path = directory / name
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)
    return SlurmClient(5.0, {"PATH": f"{directory}:{PATH['PATH']}", "SLURM_CONF": "/x", "A": "b"})


class TestRunning:
    def test_output_and_exit_code(self) -> None:
        done = run_command(["bash", "-c", "echo out; echo err >&2; exit 3"], PATH, 5.0)
        assert (done.code, done.out, done.err) == (3, "out\n", "err\n")
        assert done.words == "err"

    def test_nothing_to_read_and_files_are_private(self, tmp_path: Path) -> None:
        script = f"cat; umask; ps -o sid= -p $$ | tr -d ' '; echo $$; touch {tmp_path}/x"
        done = run_command(["bash", "-c", script], PATH, 5.0)
        umask, session, pid = done.out.split()
        assert (umask, session) == ("0077", pid)
        assert (tmp_path / "x").stat().st_mode & 0o777 == 0o600

    def test_time_that_is_up_ends_it_and_what_it_started(self, tmp_path: Path) -> None:
        started = time.monotonic()
        script = f"sleep 1000 & echo $! > {tmp_path}/pid; wait"
        done = run_command(["bash", "-c", script], PATH, 0.5)
        assert time.monotonic() - started < 10
        assert done.code is None
        assert done.words == "no answer in time"
        child = (tmp_path / "pid").read_text().strip()
        # Its parent is gone too, so whoever adopts it may take a moment to reap it.
        deadline = time.monotonic() + 10
        while (stat := Path(f"/proc/{child}/stat")).exists() and " Z " not in stat.read_text():
            assert time.monotonic() < deadline, "the child lives"
            time.sleep(0.01)

    def test_output_to_a_file_and_an_inherited_descriptor(self, tmp_path: Path) -> None:
        reader, writer = os.pipe()
        with (tmp_path / "out").open("wb") as output:
            script = f"echo out; echo err >&2; echo inherited >&{writer}"
            done = run_command(["bash", "-c", script], PATH, 5.0, output=output, keep=[writer])
        os.close(writer)
        with os.fdopen(reader) as file:
            assert file.read() == "inherited\n"
        assert (done.code, done.out, done.err) == (0, "", "")
        assert (tmp_path / "out").read_text() == "out\nerr\n"


class TestClient:
    def test_environment(self, tmp_path: Path) -> None:
        client = program(tmp_path, "env")
        words = client.look("squeue").splitlines()
        assert {"SLURM_CONF=/x", "A=b", "LC_ALL=C", "TZ=UTC0"} <= set(words)

    def test_a_look_that_fails_is_no_answer(self, tmp_path: Path) -> None:
        client = program(tmp_path, "echo 'anything at all' >&2; exit 1")
        with pytest.raises(SchedulerUnavailable, match="squeue failed: anything at all"):
            client.look("squeue")

    def test_a_look_that_takes_too_long_is_no_answer(self, tmp_path: Path) -> None:
        client = program(tmp_path, "sleep 1000")
        client.timeout_s = 0.2
        with pytest.raises(SchedulerUnavailable, match=r"squeue gave no answer within 0\.2 s"):
            client.look("squeue")

    def test_an_order_without_an_answer(self, tmp_path: Path) -> None:
        words = "scancel: error: Kill job error on job id 1_0: Socket timed out on send/recv"
        client = program(tmp_path, f"echo '{words} operation' >&2; exit 140", "scancel")
        with pytest.raises(SchedulerUnavailable, match="Socket timed out"):
            client.order("scancel", "1_0")

    def test_a_refusal_is_the_callers_to_judge(self, tmp_path: Path) -> None:
        client = program(tmp_path, "echo '2_0: Job is pending execution' >&2; exit 1", "scontrol")
        done = client.order("scontrol", "requeue", "2_0")
        assert (done.code, done.words) == (1, "2_0: Job is pending execution")

    def test_a_machine_without_slurm(self, tmp_path: Path) -> None:
        client = SlurmClient(5.0, {"PATH": str(tmp_path)})
        with pytest.raises(SchedulerUnavailable, match="no squeue in PATH"):
            client.look("squeue")

    def test_a_program_that_can_not_be_started(self, tmp_path: Path) -> None:
        client = program(tmp_path, "")
        (tmp_path / "squeue").write_text("#!/no/such/interpreter\n")
        with pytest.raises(SchedulerUnavailable, match="could not run"):
            client.look("squeue")


def test_what_slurm_reads_stays_behind() -> None:
    inherited = {
        "SLURM_CONF": "/etc/slurm/slurm.conf",
        "SLURM_NTASKS": "3",
        "SLURMD_NODENAME": "cpu0",
        "SBATCH_PARTITION": "cpu",
        "SQUEUE_FORMAT": "%i",
        "SCANCEL_STATE": "PENDING",
        "SRUN_DEBUG": "3",
        "HOME": "/home/ann",
    }
    kept = {"SLURM_CONF": "/etc/slurm/slurm.conf", "HOME": "/home/ann"}
    assert without_slurm(inherited) == kept


@pytest.mark.parametrize(
    ("words", "undelivered"),
    [
        ("slurm_load_jobs error: Socket timed out on send/recv operation", False),
        ("Unexpected message received for job 1_0", False),
        ("sbatch: error: Batch job submission failed: Socket timed out on send/recv", False),
        ("slurm_load_jobs error: Unable to contact slurm controller (connect failure)", True),
        (
            "sbatch: error: Munge encode failed: Failed to access socket\n"
            "sbatch: error: Batch job submission failed: Protocol authentication error",
            True,
        ),
        ("slurm_load_jobs error: Zero Bytes were transmitted or received", False),
        ("slurm_load_jobs error: Slurm backup controller in standby mode", False),
    ],
)
def test_no_answer(words: str, undelivered: bool) -> None:
    assert is_unavailable(words)
    assert is_undelivered(words) is undelivered


@pytest.mark.parametrize(
    "words",
    [
        "sbatch: error: invalid partition specified: nopart\n"
        "sbatch: error: Batch job submission failed: Invalid partition name specified",
        "sbatch: error: Batch job submission failed: Requested node configuration is not available",
        "sbatch: error: Batch job submission failed: Invalid feature specification",
        "2_7: Invalid job id specified",
        "Job has already finished",
        "scontrol: error: No topology information available",
    ],
)
def test_an_answer_that_is_no(words: str) -> None:
    assert not is_unavailable(words)
    assert not is_undelivered(words)
