# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""A component as the supervisor handles it."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.guard.support import PATIENCE_S, STUBBORN, known, sleeper, until

from pathways_slurm.component import ComponentProcess, ComponentStatus, read_status
from pathways_slurm.locks import locked
from pathways_slurm.processes import descendants, is_alive, send_signal

ENV = {"PATH": os.defpath, "A": "b"}
SLEEP = ["/bin/sleep", "1000"]


@pytest.fixture
def component(tmp_path: Path) -> Iterator[ComponentProcess]:
    with sleeper() as root:
        yield ComponentProcess(
            tmp_path / "state" / "rm.json", tmp_path / "logs" / "rm.log", known(root.pid), 0.5
        )
    # The root has ended.
    until(lambda: not read_status(tmp_path / "state" / "rm.json").alive, "the component ends")


def running(component: ComponentProcess) -> ComponentStatus:
    until(lambda: component.status().pid, "it runs")
    return component.status()


def test_before_its_first_start(component: ComponentProcess) -> None:
    assert component.status() == ComponentStatus(alive=False)
    component.stop()
    assert component.wait_ended(0.0)
    assert not component.status_file.parent.exists()


def test_is_alive_from_its_start_to_its_end(component: ComponentProcess) -> None:
    assert component.start(SLEEP, ENV)
    # At once: a supervisor must not start it a second time while it is on its way.
    assert component.status().alive
    assert not component.start(SLEEP, ENV)
    status = running(component)
    assert status.pid is not None
    assert is_alive(known(status.pid))
    assert status.ended == ""
    component.stop()
    assert component.wait_ended(PATIENCE_S)
    assert component.status().ended == "ended by signal 15 (SIGTERM)"
    assert component.status().signal == 15
    assert component.start(SLEEP, ENV)
    assert running(component).pid != status.pid


def test_its_environment_is_as_given(component: ComponentProcess) -> None:
    component.start(["/usr/bin/env"], ENV)
    assert component.wait_ended(PATIENCE_S)
    assert sorted(component.log.read_text().splitlines()) == ["A=b", f"PATH={os.defpath}"]
    assert component.status().exit_code == 0
    assert component.status().ended == "exited with code 0"


def test_is_not_our_child(component: ComponentProcess) -> None:
    component.start(SLEEP, ENV)
    pids = {process.pid for process in descendants(os.getpid())}
    guard = running(component).guard
    assert guard is not None
    assert guard.pid not in pids
    assert component.status().pid not in pids


def test_one_that_ignores_sigterm_is_killed(component: ComponentProcess, tmp_path: Path) -> None:
    component.start(["/bin/sh", "-c", STUBBORN, "sh", str(tmp_path / "child")], ENV)
    running(component)
    until((tmp_path / "child").exists, "it is ready")
    component.stop()
    assert not component.wait_ended(0.0)
    assert component.wait_ended(PATIENCE_S)
    assert component.status().signal == 9


def test_says_why_it_did_not_start(component: ComponentProcess) -> None:
    component.start(["/no/such/program"], ENV)
    assert component.wait_ended(PATIENCE_S)
    assert "/no/such/program" in component.status().ended


def test_a_killed_guard_is_an_end(component: ComponentProcess) -> None:
    component.start(SLEEP, ENV)
    status = running(component)
    assert status.guard is not None
    assert status.pid is not None
    process = known(status.pid)
    send_signal(status.guard, signal.SIGKILL)
    assert component.wait_ended(PATIENCE_S)
    assert not is_alive(process)
    assert "guard" in component.status().ended


def test_survives_the_supervisor_that_started_it(
    component: ComponentProcess, tmp_path: Path
) -> None:
    script = textwrap.dedent(
        f"""
        import os, signal
        from pathlib import Path
        from pathways_slurm.component import ComponentProcess
        from pathways_slurm.processes import ProcessIdentity
        component = ComponentProcess(
            Path({str(component.status_file)!r}), Path({str(component.log)!r}),
            ProcessIdentity(*{tuple(component.root)!r}), 0.5,
        )
        component.start({SLEEP!r}, {ENV!r})
        os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    supervisor = subprocess.run([sys.executable, "-c", script], check=False, cwd=tmp_path)
    assert supervisor.returncode == -signal.SIGKILL
    status = running(component)
    assert status.alive
    component.stop()
    assert component.wait_ended(PATIENCE_S)


def test_files_are_private(component: ComponentProcess) -> None:
    component.start(SLEEP, ENV)
    running(component)
    for path in (component.status_file, component.log):
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    "text", ["", "[]", '{"pid": "x"}', '{"guard_pid": 1, "guard_start_time": 1}']
)
def test_a_damaged_file_tells_no_more_than_its_lock(tmp_path: Path, text: str) -> None:
    path = tmp_path / "status"
    path.write_text(text)
    status = read_status(path)
    assert not status.alive
    assert "it is damaged" in status.ended
    with locked(tmp_path / "status.lock", 1.0):
        assert read_status(path).alive
