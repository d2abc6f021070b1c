# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""A supervisor whose job was started again meets what is left of the job's first run."""

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.supervisor.holding import holding_lock

from pathways_slurm import supervise
from pathways_slurm.config import Settings, load_settings
from pathways_slurm.schedulers import service_was_restarted
from pathways_slurm.service_lock import AlreadyRunning, lock_holder
from pathways_slurm.wakeup import Wakeup


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    found = load_settings(
        {
            "SLICE_SHAPE": "2x4",
            "MIN_SLICES": "1",
            "MAX_SLICES": "1",
            "GCS_BUCKET": "bucket",
            "PATHWAYS_SCHEDULER": "slurm",
            "PATHWAYS_HOME": str(tmp_path),
        }
    )
    found.paths.state.mkdir()
    return found


@pytest.fixture
def first_run(settings: Settings) -> Iterator[subprocess.Popen[str]]:
    """Holds the service's lock."""
    with holding_lock(settings.paths.lock) as holder:
        yield holder


def _job(monkeypatch: pytest.MonkeyPatch, restarts: str) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.setenv("SLURM_RESTART_COUNT", restarts)


@pytest.mark.parametrize(("restarts", "again"), [("0", False), ("1", True), ("", False)])
def test_a_job_knows_whether_it_was_started_before(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, restarts: str, again: bool
) -> None:
    _job(monkeypatch, restarts)
    assert service_was_restarted(settings) is again


def test_a_first_run_does_not_wait_for_another_service(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, first_run: subprocess.Popen[str]
) -> None:
    _job(monkeypatch, "0")
    held = pytest.raises(AlreadyRunning, match=str(first_run.pid))
    with Wakeup() as wakeup, held, supervise._lock(settings, wakeup):
        pass


def test_a_further_run_waits_until_the_first_one_has_given_way(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, first_run: subprocess.Popen[str]
) -> None:
    _job(monkeypatch, "1")
    threading.Timer(0.3, first_run.kill).start()
    with Wakeup() as wakeup, supervise._lock(settings, wakeup):
        assert first_run.wait(10) == -signal.SIGKILL
        holder = lock_holder(settings.paths.lock)
        assert holder is not None
        assert holder.pid == os.getpid()


def test_one_that_is_asked_to_end_meanwhile_does_not_wait_on(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, first_run: subprocess.Popen[str]
) -> None:
    _job(monkeypatch, "1")
    with Wakeup() as wakeup:
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM)).start()
        with pytest.raises(AlreadyRunning), supervise._lock(settings, wakeup):
            pass
        assert wakeup.stop_reason
    assert first_run.poll() is None
