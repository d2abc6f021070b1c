# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""environment::ensure: real pip, a lock file of one package, and no network.

The checkout is one of the test's own. Its build back end waits at a gate, if there is one: that is
how a test holds a set-up in the middle.
"""

import base64
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest

LIB = Path(__file__).resolve().parents[3] / "scripts" / "lib"
SECONDS = 90.0

BACKEND = """
import os, zipfile

WHEEL = "Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"

def get_requires_for_build_editable(config_settings=None):
    return []

def build_editable(directory, config_settings=None, metadata_directory=None):
    gate = os.path.join(os.getcwd(), "gate")
    if os.path.exists(gate):
        with open(gate) as wait:
            wait.read()
    name = "project-1-py3-none-any.whl"
    info = "project-1.dist-info"
    with zipfile.ZipFile(os.path.join(directory, name), "w") as wheel:
        wheel.writestr("project.pth", os.getcwd())
        wheel.writestr(info + "/METADATA", "Metadata-Version: 2.1\\nName: project\\nVersion: 1\\n")
        wheel.writestr(info + "/WHEEL", WHEEL)
        wheel.writestr(info + "/RECORD", "")
    return name
"""

PYPROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "project"
version = "1"
"""


def make_wheel(folder: Path, version: str) -> str:
    """Makes a package named tiny; returns its line for a lock file."""
    wheel = folder / f"tiny-{version}-py3-none-any.whl"
    info = f"tiny-{version}.dist-info"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("tiny.py", f"version = {version!r}\n")
        file.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: tiny\nVersion: {version}\n"
        )
        file.writestr(
            f"{info}/WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        file.writestr(f"{info}/RECORD", "")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    return f"tiny=={version} \\\n    --hash=sha256:{digest}\n"


@dataclass
class Checkout:
    root: Path
    wheels: Path

    def lock(self, version: str) -> None:
        (self.root / "requirements.lock").write_text(make_wheel(self.wheels, version))

    def start(self) -> subprocess.Popen[str]:
        """Starts environment::ensure, from a directory that has nothing to do with it."""
        return subprocess.Popen(
            [
                "bash",
                "-euo",
                "pipefail",
                "-c",
                'for part in common python environment; do source "$0/$part.sh"; done;'
                ' environment::ensure "$1"; echo done',
                str(LIB),
                str(self.root),
            ],
            cwd="/",
            env={
                "PATH": f"{Path(sys.base_prefix) / 'bin'}:{os.environ['PATH']}",
                # Nothing can be written there.
                "HOME": "/proc/self",
                "PIP_NO_INDEX": "1",
                "PIP_FIND_LINKS": self.wheels.as_uri(),
                # Some interpreters do not find their library without it.
                "LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", ""),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def ensure(self) -> str:
        """Runs environment::ensure; returns what it said."""
        return finish(self.start())

    def tiny_version(self) -> str:
        return subprocess.check_output(
            [self.root / ".venv/bin/python", "-c", "import tiny, backend; print(tiny.version)"],
            text=True,
            cwd="/",
        ).strip()

    def made(self) -> int:
        """Differs between environments that were made anew."""
        return (self.root / ".venv/setup.log").stat().st_mtime_ns


def finish(process: subprocess.Popen[str]) -> str:
    output, said = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, said
    assert output == "done\n"
    return said


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A checkout whose environment is complete. Tests work on copies of it."""
    wheels = tmp_path_factory.mktemp("wheels")
    root = tmp_path_factory.mktemp("whole") / "check out"
    root.mkdir()
    checkout = Checkout(root, wheels)
    (root / "backend.py").write_text(BACKEND)
    (root / "pyproject.toml").write_text(PYPROJECT)
    checkout.lock("1.0")
    said = checkout.ensure()
    assert "there is none yet" in said
    assert "Installed 1 packages" in said
    return checkout


@pytest.fixture
def checkout(whole: Checkout, tmp_path: Path) -> Iterator[Checkout]:
    """The whole checkout itself, put back afterwards as it was."""
    saved = tmp_path / "saved"
    shutil.copytree(whole.root, saved, symlinks=True)
    yield whole
    shutil.rmtree(whole.root)
    shutil.copytree(saved, whole.root, symlinks=True)


def test_it_holds_what_the_lock_says_and_the_project(checkout: Checkout) -> None:
    assert checkout.tiny_version() == "1.0"


def test_a_whole_environment_is_left_alone_without_a_word(checkout: Checkout) -> None:
    before = checkout.made()
    assert checkout.ensure() == ""
    assert checkout.made() == before


def test_a_changed_lock_makes_it_anew(checkout: Checkout) -> None:
    checkout.lock("2.0")
    assert "requirements.lock has changed" in checkout.ensure()
    assert checkout.tiny_version() == "2.0"


def test_a_changed_project_file_installs_the_project_only(checkout: Checkout) -> None:
    before = checkout.made()
    (checkout.root / "pyproject.toml").write_text(PYPROJECT + "\n# changed\n")
    assert checkout.ensure() == "Installing the project itself\n"
    assert checkout.made() == before
    assert checkout.ensure() == ""


def test_an_environment_made_by_other_means_is_made_anew(checkout: Checkout) -> None:
    (checkout.root / ".venv/stamp").unlink()
    assert "it is not complete" in checkout.ensure()


def test_a_broken_interpreter_makes_it_anew(checkout: Checkout) -> None:
    python = checkout.root / ".venv/bin/python"
    python.unlink()
    python.symlink_to("/nowhere/python")
    assert "its interpreter does not run" in checkout.ensure()
    assert checkout.tiny_version() == "1.0"


def test_a_moved_checkout_gets_an_environment_of_its_own(
    checkout: Checkout, tmp_path: Path
) -> None:
    moved = Checkout(tmp_path / "else where", checkout.wheels)
    shutil.copytree(checkout.root, moved.root, symlinks=True)
    assert f"it was made in another place ({checkout.root})" in moved.ensure()
    assert moved.tiny_version() == "1.0"
    script = (moved.root / ".venv/bin/pip").read_text()
    assert str(moved.root) in script


def test_a_wrong_hash_is_an_error_shown_in_full(checkout: Checkout) -> None:
    lock = checkout.root / "requirements.lock"
    good = lock.read_text()
    wrong = base64.b16encode(b"x" * 32).decode().lower()
    lock.write_text(f"tiny==1.0 --hash=sha256:{wrong}\n")
    process = checkout.start()
    output, said = process.communicate(timeout=SECONDS)
    assert process.returncode == 1
    assert output == ""
    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in said
    assert wrong in said
    lock.write_text(good)
    assert "it is not complete" in checkout.ensure()
    assert checkout.tiny_version() == "1.0"


def start_held(checkout: Checkout) -> tuple[subprocess.Popen[str], IO[str]]:
    """Starts a set-up that has got as far as the project, and waits there until the gate closes."""
    gate = checkout.root / "gate"
    os.mkfifo(gate)
    (checkout.root / "pyproject.toml").write_text(PYPROJECT + "\n# changed\n")
    process = checkout.start()
    # This returns when the back end has opened the other end.
    return process, gate.open("w")


def test_a_killed_set_up_is_done_over(checkout: Checkout) -> None:
    process, gate = start_held(checkout)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=SECONDS)
    gate.close()
    (checkout.root / "gate").unlink()
    # Even if the file is what it was before, what the killed one left is not trusted.
    (checkout.root / "pyproject.toml").write_text(PYPROJECT)
    assert checkout.ensure() == "Installing the project itself\n"
    assert checkout.ensure() == ""


def test_two_at_once_wait_for_each_other(checkout: Checkout) -> None:
    first, gate = start_held(checkout)
    second = checkout.start()
    assert second.stderr is not None
    assert second.stderr.readline() == (
        f"Another set-up of {checkout.root}/.venv is running; waiting for it\n"
    )
    assert second.poll() is None
    (checkout.root / "gate").unlink()
    gate.close()
    finish(first)
    assert finish(second) == ""
    assert checkout.tiny_version() == "1.0"
