# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""python::find, against interpreters that are small scripts in directories of the test's own."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

LIB = Path(__file__).resolve().parents[3] / "scripts" / "lib"
TOOLS = ("bash", "timeout", "sort", "env", "mktemp", "rm", "cat", "grep")


@dataclass(frozen=True)
class Machine:
    """A machine as python::find sees it: PATH, HOME and nothing else."""

    root: Path

    def __post_init__(self) -> None:
        tools = self.root / "tools"
        tools.mkdir(parents=True)
        for tool in TOOLS:
            found = shutil.which(tool)
            assert found is not None, tool
            (tools / tool).symlink_to(found)

    def python(
        self,
        place: str,
        version: str,
        *,
        level: str = "final",
        implementation: str = "CPython",
        pip: str = "pip",
    ) -> Path:
        """Puts an interpreter at a place, which answers for itself."""
        path = self.root / place
        return self.program(
            place,
            f"printf '%s\\n' {version} {level} {implementation} {pip} '{path}'",
        )

    def program(self, place: str, text: str) -> Path:
        path = self.root / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return path

    def find(self, **environment: str) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join(str(self.root / name) for name in ("one", "two", "tools"))
        return subprocess.run(
            [
                str(self.root / "tools" / "bash"),
                "-euo",
                "pipefail",
                "-c",
                'source "$0/common.sh"; source "$0/python.sh"; python::find',
                str(LIB),
            ],
            env={"PATH": path, "HOME": str(self.root / "home"), **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "a machine")


def test_the_newest_name_on_path_wins(machine: Machine) -> None:
    machine.python("one/python3", "3.12.9")
    machine.python("one/python3.12", "3.12.9")
    expected = machine.python("two/python3.13", "3.13.1")
    found = machine.find()
    assert (found.returncode, found.stdout.strip()) == (0, str(expected)), found.stderr


def test_a_shim_that_only_prints_an_error_is_passed_over(machine: Machine) -> None:
    machine.program("one/python3.13", "echo 'pyenv: python3.13: command not found' >&2; exit 127")
    expected = machine.python("two/python3.13", "3.13.0")
    assert machine.find().stdout.strip() == str(expected)


def test_a_program_that_answers_something_else_is_passed_over(machine: Machine) -> None:
    machine.program("one/python3.13", "echo hello")
    expected = machine.python("two/python3", "3.12.0")
    assert machine.find().stdout.strip() == str(expected)


def test_path_goes_before_pyenv(machine: Machine) -> None:
    expected = machine.python("one/python3", "3.12.0")
    machine.python("home/.pyenv/versions/3.14.0/bin/python", "3.14.0")
    assert machine.find().stdout.strip() == str(expected)


def test_pyenv_gives_its_newest_stable_version(machine: Machine) -> None:
    machine.python("one/python3", "3.11.2")
    for name in ("3.9.18", "3.12.11", "3.12.2", "3.15.0rc1", "pypy3.11-7.3.17", "3.13-dev"):
        machine.python(f"home/.pyenv/versions/{name}/bin/python", "3.12.2")
    expected = machine.root / "home/.pyenv/versions/3.12.11/bin/python"
    assert machine.find().stdout.strip() == str(expected)


def test_pyenv_root_is_looked_at_too(machine: Machine) -> None:
    expected = machine.python("opt/pyenv/versions/3.13.2/bin/python", "3.13.2")
    found = machine.find(PYENV_ROOT=str(machine.root / "opt/pyenv"))
    assert found.stdout.strip() == str(expected)


def test_what_is_no_good_is_named_with_its_fault(machine: Machine) -> None:
    old = machine.python("one/python3", "3.11.2")
    early = machine.python("one/python3.14", "3.14.0", level="candidate")
    other = machine.python("one/python", "3.12.1", implementation="PyPy")
    broken = machine.program("one/python3.12", "echo 'no such library' >&2; exit 127")
    found = machine.find()
    assert (found.returncode, found.stdout) == (1, "")
    for line in (
        f"{old}: 3.11.2 is older than 3.12",
        f"{early}: 3.14.0 is a pre-release (candidate)",
        f"{other}: 3.12.1 is PyPy, not CPython",
        f"{broken}: does not run (no such library)",
        "pyenv install",
    ):
        assert line in found.stderr


def test_nothing_at_all_is_said_so(machine: Machine) -> None:
    found = machine.find()
    assert found.returncode == 1
    assert "none was there" in found.stderr
    assert "CPython 3.12 or newer is needed" in found.stderr


def test_a_python_without_ensurepip_is_passed_over_and_explained(machine: Machine) -> None:
    lacking = machine.python("one/python3.13", "3.13.5", pip="no-pip")
    found = machine.find()
    assert found.returncode == 1
    assert f"{lacking}: 3.13.5 lacks the modules venv and ensurepip" in found.stderr
    assert "apt-get install python3.13-venv" in found.stderr

    expected = machine.python("two/python3.12", "3.12.4")
    assert machine.find().stdout.strip() == str(expected)


def test_the_real_machine_has_one(tmp_path: Path) -> None:
    """The one that runs this test will do, so an environment of its own must not hide it."""
    (tmp_path / "python3.14").symlink_to(os.path.realpath("/proc/self/exe"))
    found = subprocess.run(
        ["bash", "-c", 'source "$0/common.sh"; source "$0/python.sh"; python::find', str(LIB)],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert found.returncode == 0, found.stderr
    assert Path(found.stdout.strip()).exists()
