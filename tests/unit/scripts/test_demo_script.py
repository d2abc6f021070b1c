# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What scripts/demo.sh does before Python: packages of Slurm, and the demo as root's ordinary user.

The functions are run against small programs in directories of the test's own.
"""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from suites.needs import PACKAGES

SCRIPTS = Path(__file__).resolve().parents[3] / "scripts"


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/usr/bin/env bash\nset -euo pipefail\n{text}\n")
    path.chmod(0o755)


def bash(script: str, *arguments: str | Path) -> list[str | Path]:
    return [shutil.which("bash") or "bash", "-euo", "pipefail", "-c", script, "_", *arguments]


class TestPackages:
    SCRIPT = (
        f"source {SCRIPTS}/lib/common.sh; "
        # The machine's own daemons must not be found.
        f"source <(sed 's|:/usr/sbin:/sbin||' {SCRIPTS}/lib/slurm.sh); slurm::require; echo there"
    )

    def require(self, bin_directory: Path, *present: str) -> "subprocess.CompletedProcess[str]":
        for name in present:
            program(bin_directory / name, "")
        sed = shutil.which("sed")
        assert sed is not None
        (bin_directory / "sed").symlink_to(sed)
        return subprocess.run(
            bash(self.SCRIPT), env={"PATH": str(bin_directory)}, capture_output=True, text=True
        )

    def test_all_missing_packages_are_named(self, tmp_path: Path) -> None:
        (tmp_path / "bin").mkdir()
        done = self.require(tmp_path / "bin")
        assert done.returncode == 2
        packages = " ".join(PACKAGES["slurm"])
        assert f"apt-get install --no-install-recommends {packages}\n" in done.stderr
        assert "there" not in done.stdout

    def test_only_what_is_missing_is_named(self, tmp_path: Path) -> None:
        done = self.require(tmp_path / "bin", "slurmctld", "sbatch", "srun", "munged")
        assert done.returncode == 2
        assert "there is no slurmd." in done.stderr
        assert "--no-install-recommends slurmd\n" in done.stderr

    def test_nothing_is_said_where_all_is_there(self, tmp_path: Path) -> None:
        all_of_it = ("slurmctld", "slurmd", "sbatch", "srun", "munged")
        done = self.require(tmp_path / "bin", *all_of_it)
        assert (done.returncode, done.stdout, done.stderr) == (0, "there\n", "")


class TestAsOrdinaryUser:
    """With an ordinary.sh that runs a command as whoever runs the test."""

    SCRIPT = (
        f"source {SCRIPTS}/lib/common.sh; source {SCRIPTS}/lib/demo_ordinary.sh; "
        'demo::as_ordinary "$@"'
    )

    @pytest.fixture
    def checkout(self, tmp_path: Path) -> Path:
        checkout = tmp_path / "check out"
        program(checkout / "scripts/lib/ordinary.sh", 'cd "${0%/*}/../.." && exec "$@"')
        return checkout

    def run(
        self, checkout: Path, demo: str, *options: str | Path
    ) -> "subprocess.CompletedProcess[str]":
        program(checkout / "scripts/demo.sh", demo)
        return subprocess.run(
            bash(self.SCRIPT, checkout, *options),
            env={**os.environ, "TMPDIR": str(checkout)},
            cwd=checkout.parent,
            capture_output=True,
            text=True,
        )

    @pytest.mark.parametrize("form", [["--json", "s.json"], ["--json=s.json"]])
    def test_summary_ends_up_where_it_was_asked_for(self, checkout: Path, form: list[str]) -> None:
        demo = """echo "$1 $2 $3 $4"; printf '{"of": "%s"}\\n' "$5" >"$5"; exit 7"""
        done = self.run(checkout, demo, "--slurm", *form, "--steps", "30")
        assert done.returncode == 7, done.stderr
        assert done.stdout == "--slurm --steps 30 --json\n"
        assert (checkout.parent / "s.json").read_text().startswith('{"of": "')
        assert {p.name for p in checkout.iterdir()} == {"scripts"}, "its directory is left"

    def test_no_summary_no_file(self, checkout: Path) -> None:
        done = self.run(checkout, "exit 2", "--slurm", "--json", "s.json")
        assert done.returncode == 2
        assert not (checkout.parent / "s.json").exists()
        assert {p.name for p in checkout.iterdir()} == {"scripts"}

    def test_directory_of_the_summary_must_exist(self, checkout: Path) -> None:
        done = self.run(checkout, "echo started", "--slurm", "--json", "/nowhere/s.json")
        assert done.returncode == 2
        assert "--json: there is no directory /nowhere" in done.stderr
        assert done.stdout == ""

    def test_signal_is_passed_on_and_its_end_awaited(self, checkout: Path) -> None:
        program(
            checkout / "scripts/demo.sh",
            """trap 'echo 1 >"$3"; exit 143' TERM; echo up; while :; do sleep 0.05; done""",
        )
        process = subprocess.Popen(
            bash(self.SCRIPT, checkout, "--slurm", "--json", "s.json"),
            env={**os.environ, "TMPDIR": str(checkout)},
            cwd=checkout.parent,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "up\n"
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 143
            assert (checkout.parent / "s.json").read_text() == "1\n"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            process.stdout.close()
