# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The record of a run, and the lock of a service."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pathways_slurm.model import Component, Memory, SliceMemory, Submission
from pathways_slurm.processes import identify
from pathways_slurm.states import ServicePhase, SliceState
from pathways_slurm.store import (
    AlreadyRunning,
    RecordError,
    RunRecord,
    load_record,
    lock_holder,
    save_record,
    service_lock,
)

HOLD_LOCK = """
import sys
from pathlib import Path
from pathways_slurm.store import service_lock
with service_lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def _record() -> RunRecord:
    memory = Memory(
        run_id="abc",
        phase=ServicePhase.READY,
        since=12.5,
        reason="3 of 3 slices ready",
        submissions=(Submission("abc-0", (0, 1), 1, "local-1"), Submission("abc-1", (1,), 4)),
        slices={1: SliceMemory(SliceState.READY, 3.0, "every host answers", 2, 2, (1.0,), 0.0, 1)},
        component_restarts={Component.RM: (1.0, 2.0)},
        started=frozenset({Component.RM, Component.PROXY}),
    )
    root = identify(os.getpid())
    assert root is not None
    return RunRecord(memory, root, "local", "127.0.0.0/16")


def test_a_record_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    save_record(path, _record())
    assert load_record(path) == _record()
    assert path.stat().st_mode & 0o777 == 0o600


def test_no_record_is_none(tmp_path: Path) -> None:
    assert load_record(tmp_path / "run.json") is None


@pytest.mark.parametrize("text", ["", "{", "{}", '{"memory": {"run_id": 7}}'])
def test_a_damaged_record_is_said_and_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "run.json"
    path.write_text(text)
    with pytest.raises(RecordError, match="is not a run record"):
        load_record(path)
    assert path.read_text() == text


def test_the_lock_names_its_holder_and_ends_with_it(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    assert lock_holder(lock) is None
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD_LOCK, str(lock)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert lock_holder(lock) == holder.pid
        with pytest.raises(AlreadyRunning, match=str(holder.pid)), service_lock(lock):
            pass
        holder.send_signal(signal.SIGKILL)
        holder.wait(10)
    assert lock_holder(lock) is None
    with service_lock(lock):
        assert lock_holder(lock) == os.getpid()
