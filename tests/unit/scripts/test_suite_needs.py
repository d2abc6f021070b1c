# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What the runner of suites says of a machine that cannot run containers, and with which enroot."""

import os
from pathlib import Path

import pytest

from suites import __main__ as runner
from suites import needs, process
from suites.outcome import Counts, Ended


def put(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_missing_programs_are_named_with_their_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs, "_IMAGE_PROGRAMS", ("no-such-program", "sh"))
    reason = needs.lacking(["container-images"])
    assert reason is not None
    assert reason.startswith("needs no-such-program; as root: apt-get install")
    assert reason.endswith("busybox-static squashfs-tools")


def test_denied_user_namespaces_are_said_with_what_denies_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    put(tmp_path, "unshare", "echo 'unshare: Operation not permitted' >&2; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    reason = needs.lacking(["user-namespaces"])
    assert reason is not None
    assert "Operation not permitted" in reason
    assert "user.max_user_namespaces" in reason


def test_a_machine_that_allows_them_lacks_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    put(tmp_path, "unshare", "exit 0")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert needs.lacking(["user-namespaces"]) is None


def test_an_enroot_is_passed_on_and_narrows_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    commands: list[list[str]] = []

    def run(command: list[str], **_: object) -> Ended:
        commands.append(command)
        return Ended(exit_code=0, seconds=1.0, counts=Counts(passed=1))

    (tmp_path / "tests" / "a").mkdir(parents=True)
    (tmp_path / "b.py").touch()
    (tmp_path / "tests" / "suites.toml").write_text(
        '[a]\ntests = "tests/a"\nminutes = 1\n[b]\nprogram = "b.py"\nminutes = 1\n'
    )
    monkeypatch.setattr(runner, "_ROOT", tmp_path)
    monkeypatch.setattr(process, "run", run)
    monkeypatch.chdir(tmp_path)
    assert runner.main(["--enroot", "my/enroot"]) == 0
    assert [f"--enroot={tmp_path}/my/enroot" in command for command in commands] == [True, False]


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        ("1.9.13p3", None),
        ("1.10.0", None),
        ("1.9.5p2", "needs sudo 1.9.10 or newer, this is 'Sudo version 1.9.5'"),
    ],
)
def test_a_sudo_knows_regular_expressions(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, reason: str | None
) -> None:
    put(tmp_path, "sudo", f"echo 'Sudo version {version}'")
    put(tmp_path, "visudo", "exit 0")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert needs.lacking(["sudo"]) == reason
