# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""environment::ensure: real pip, a lock file of one package, and no network.

The checkout is one of the test's own. Its installation waits at a gate, if there is one: so a test
holds a set-up in the middle.
"""

import base64
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest
from tests.setup.small_packages import make_project, make_wheel

LIB = Path(__file__).resolve().parents[3] / "scripts" / "lib"
SECONDS = 90.0


@dataclass
class Checkout:
    root: Path
    wheels: Path

    def lock(self, version: str) -> None:
        (self.root / "requirements.lock").write_text(make_wheel(self.wheels, "tiny", version))

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

    def change_project(self) -> None:
        self.project.write_text(f"{self.project.read_text()}\n# changed\n")

    @property
    def project(self) -> Path:
        return self.root / "pyproject.toml"

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
    make_project(root)
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
    checkout.change_project()
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
    """Starts a set-up of a changed project, which waits in its midst until the gate closes."""
    gate = checkout.root / "gate"
    os.mkfifo(gate)
    checkout.change_project()
    process = checkout.start()
    # This returns when the back end has opened the other end.
    return process, gate.open("w")


def test_a_killed_set_up_is_done_over(checkout: Checkout) -> None:
    before = checkout.project.read_text()
    process, gate = start_held(checkout)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=SECONDS)
    gate.close()
    (checkout.root / "gate").unlink()
    # Even if the file is what it was before, what the killed one left is not trusted.
    checkout.project.write_text(before)
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
