# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""scripts/lib/installation.sh: which environment services and workloads run with."""

import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

LIB = Path(__file__).resolve().parents[3] / "scripts" / "lib"


@dataclass
class Installation:
    """A checkout as installation.sh sees it: nothing but environments, which are empty."""

    root: Path
    variables: dict[str, str] = field(default_factory=dict)

    def make(self, name: str, *, complete: bool = True) -> Path:
        """Makes an environment at that place below the checkout."""
        place = self.root / name
        (place / "bin").mkdir(parents=True)
        for program in ("python", "pathways-slurm"):
            (place / "bin" / program).write_text("")
            (place / "bin" / program).chmod(0o755)
        (place / "stamp").write_text("python 3.13.0\n" + ("project 1f\n" if complete else ""))
        return place

    def ask(self, function: str = "environment") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [
                "bash",
                "-euo",
                "pipefail",
                "-c",
                'source "$0/common.sh"; source "$0/installation.sh";'
                f' installation::{function} "$1"',
                str(LIB),
                str(self.root),
            ],
            env={"PATH": os.environ["PATH"], **self.variables},
            cwd="/",
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def place(self, function: str = "environment") -> Path:
        """What it prints."""
        done = self.ask(function)
        assert done.returncode == 0, done.stderr
        return Path(done.stdout.removesuffix("\n"))

    def fault(self, function: str = "environment") -> str:
        """What it says when it finds none."""
        done = self.ask(function)
        assert (done.returncode, done.stdout) == (2, "")
        return done.stderr


@pytest.fixture
def installation(tmp_path: Path) -> Installation:
    root = tmp_path / "check out"
    root.mkdir()
    return Installation(root)


def test_what_setup_env_made_last_comes_before_the_developers_own(
    installation: Installation,
) -> None:
    own = installation.make(".venv")
    assert installation.place() == own
    made = installation.make("environments/jax-0.11.1")
    (installation.root / "environments/current").symlink_to("jax-0.11.1")
    assert installation.place() == made


def test_the_variable_comes_before_all(installation: Installation) -> None:
    installation.make(".venv")
    chosen = installation.make("elsewhere")
    installation.variables["PATHWAYS_ENVIRONMENT"] = str(chosen)
    assert installation.place() == chosen


def test_a_variable_that_names_no_environment_is_a_fault(installation: Installation) -> None:
    installation.make(".venv")
    installation.variables["PATHWAYS_ENVIRONMENT"] = str(installation.root)
    said = installation.fault()
    assert f"PATHWAYS_ENVIRONMENT is {installation.root}, which is no complete" in said


def test_the_environments_may_be_elsewhere(installation: Installation, tmp_path: Path) -> None:
    other = Installation(tmp_path).make("shared/current")
    installation.variables["PATHWAYS_ENVIRONMENTS"] = str(tmp_path / "shared")
    assert installation.place() == other
    installation.variables["PATHWAYS_ENVIRONMENTS"] = "shared"
    assert "must be an absolute path" in installation.fault()


def test_without_any_the_fix_is_named(installation: Installation) -> None:
    said = installation.fault()
    assert "There is no environment yet" in said
    assert f"with: {installation.root}/scripts/setup_env.sh\n" in said


def test_one_that_is_not_complete_is_not_passed_over(installation: Installation) -> None:
    installation.make(".venv")
    installation.make("environments/jax-0.11.1", complete=False)
    (installation.root / "environments/current").symlink_to("jax-0.11.1")
    said = installation.fault()
    assert "environments/current is not complete" in said
    assert "setup_env.sh" in said


def test_maxtext_has_an_environment_of_its_own(installation: Installation) -> None:
    installation.make(".venv")
    installation.make("environments/current")
    said = installation.fault("maxtext_environment")
    assert f"with: {installation.root}/scripts/setup_env.sh --maxtext\n" in said
    made = installation.make("environments/maxtext-jax-0.11.1")
    (installation.root / "environments/maxtext").symlink_to(made.name)
    assert installation.place("maxtext_environment") == made
    chosen = installation.make("elsewhere")
    installation.variables["PATHWAYS_MAXTEXT_ENVIRONMENT"] = str(chosen)
    assert installation.place("maxtext_environment") == chosen
