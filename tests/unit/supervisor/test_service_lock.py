# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The lock of a service, and the end by ``down`` of whoever holds it, here or elsewhere."""

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.unit.supervisor.holding import holding_lock

from pathways_slurm.cli.down import command as down
from pathways_slurm.model import Memory
from pathways_slurm.paths import ServicePaths
from pathways_slurm.processes import ProcessIdentity, identify
from pathways_slurm.service_lock import AlreadyRunning, Holder, lock_holder, service_lock
from pathways_slurm.store import RunRecord, save_record


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ServicePaths:
    """Of a service that has run."""
    monkeypatch.setenv("PATHWAYS_HOME", str(tmp_path))
    found = ServicePaths(tmp_path)
    found.state.mkdir()
    return found


@pytest.fixture
def holding(paths: ServicePaths) -> Iterator[subprocess.Popen[str]]:
    """A supervisor, as far as its lock can tell."""
    with holding_lock(paths.lock) as process:
        yield process


def _record(paths: ServicePaths, service_job: str) -> None:
    root = ProcessIdentity(1, 1, "another-boot")
    save_record(paths.record, RunRecord(Memory(run_id="r"), root, "slurm", "", service_job))


def _elsewhere(paths: ServicePaths, holding: subprocess.Popen[str]) -> None:
    """Has the lock say that its holder is a process of another machine, with a pid of this one."""
    own = identify(holding.pid)
    assert own is not None
    paths.lock.write_text(f"{own.pid} {own.start_time} another-boot cpu7\n")


def test_the_lock_names_its_holder_and_ends_with_it(
    paths: ServicePaths, holding: subprocess.Popen[str]
) -> None:
    holder = lock_holder(paths.lock)
    assert holder == Holder(identify(holding.pid), socket.gethostname())
    assert holder.is_here()
    expected = rf"\(pid {holding.pid} on {socket.gethostname()}\)"
    with pytest.raises(AlreadyRunning, match=expected), service_lock(paths.lock):
        pass
    holding.send_signal(signal.SIGKILL)
    holding.wait(10)
    assert lock_holder(paths.lock) is None
    with service_lock(paths.lock):
        assert lock_holder(paths.lock) == Holder(identify(os.getpid()), socket.gethostname())


@pytest.mark.parametrize("words", ["", "123\n", "a b c d\n"])
def test_a_holder_that_could_not_say_who_it_is(
    paths: ServicePaths, holding: subprocess.Popen[str], words: str
) -> None:
    paths.lock.write_text(words)
    assert lock_holder(paths.lock) == Holder()
    assert holding.poll() is None


@pytest.mark.usefixtures("paths")
def test_down_ends_a_holder_on_this_machine(holding: subprocess.Popen[str]) -> None:
    done = CliRunner().invoke(down)
    assert (done.exit_code, done.output) == (0, "nothing of the service is left\n")
    assert holding.wait(10) == -signal.SIGTERM


def test_down_leaves_a_process_of_this_machine_alone_whose_pid_another_machine_has_given(
    paths: ServicePaths, holding: subprocess.Popen[str]
) -> None:
    _elsewhere(paths, holding)
    done = CliRunner().invoke(down)
    assert done.exit_code == 1
    assert f"runs on another machine (pid {holding.pid} on cpu7)" in done.output
    assert "run 'pathways-slurm down' there" in done.output
    assert holding.poll() is None


def test_down_has_slurm_end_a_service_on_another_machine(
    paths: ServicePaths,
    holding: subprocess.Popen[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    _record(paths, "40")
    _elsewhere(paths, holding)
    scancel = tmp_path / "bin" / "scancel"
    scancel.parent.mkdir()
    calls = tmp_path / "calls"
    scancel.write_text(f'#!/bin/sh\necho "$*" >>{calls}\n[ "$*" != 40 ] || kill {holding.pid}\n')
    scancel.chmod(0o755)
    monkeypatch.setenv("PATH", f"{scancel.parent}:/usr/bin:/bin")
    done = CliRunner().invoke(down, ["--timeout", "20"])
    assert f"(pid {holding.pid} on cpu7) is Slurm job 40: cancelling it" in done.output
    assert holding.wait(10) == -signal.SIGTERM
    cleanup = calls.read_text().splitlines()[-1]
    assert cleanup.endswith("--name=pathways-cleanup-40"), "that of the service goes, too"

    monkeypatch.setenv("PATH", "/nowhere")
    with holding_lock(paths.lock) as holding_again:
        _elsewhere(paths, holding_again)
        done = CliRunner().invoke(down)
        assert done.exit_code == 1
        assert "is Slurm job 40" in done.output
        assert "could not be cancelled: there is no scancel in PATH=/nowhere" in done.output
