# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The record of a run."""

import json
import os
from pathlib import Path

import pytest

from pathways_slurm.causes import Cause
from pathways_slurm.maintenance import Request
from pathways_slurm.model import (
    Component,
    ComponentMemory,
    Departure,
    MaintenanceMemory,
    Memory,
    SliceMemory,
    Submission,
)
from pathways_slurm.notices import Going, Notices
from pathways_slurm.processes import identify
from pathways_slurm.states import ServicePhase, SliceState
from pathways_slurm.store import RecordError, RunRecord, load_record, save_record
from pathways_slurm.streak import Streak


def _record() -> RunRecord:
    memory = Memory(
        run_id="abc",
        phase=ServicePhase.READY,
        since=12.5,
        reason="3 of 3 slices ready",
        submissions=(Submission("abc-0", (0, 1), 1, "local-1"), Submission("abc-1", (1,), 4)),
        slices={
            1: SliceMemory(
                SliceState.ENDING,
                since=3.0,
                reason="goes",
                incarnation=2,
                was_ready=2,
                spent={Cause.CRASH: (1.0,), Cause.TIME_LIMIT: (2.0, 3.0)},
                exhausted=Cause.CRASH,
                ordered=1,
                doubt=Streak(2.0, 3.0, 2),
                departure=Departure(2, "host 0 got SIGTERM", 28.0, released="its data is saved"),
                maintenance=MaintenanceMemory(Request(50.0, "disk", 2.0), 2, 3.0, ("n1",)),
            )
        },
        components={
            Component.RM: ComponentMemory(started=True, restarts=(1.0, 2.0), killed="hung"),
            Component.PROXY: ComponentMemory(answered=True, silence=Streak(1.0, 3.0, 3)),
        },
        notices=Notices("abc", 3, going=(Going(1, 2, 28.0, "host 0 got SIGTERM"),)),
    )
    root = identify(os.getpid())
    assert root is not None
    return RunRecord(memory, root, "local", "127.0.0.0/16")


def test_a_record_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    save_record(path, _record())
    assert load_record(path) == _record()
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_record_of_a_version_that_did_not_tell_causes_apart_is_read(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    save_record(path, _record())
    raw = json.loads(path.read_text())
    kept = raw["memory"]["slices"]["1"]
    del kept["spent"], kept["exhausted"]
    kept["failures"] = [1.0, 2.0]
    path.write_text(json.dumps(raw))
    record = load_record(path)
    assert record is not None
    assert record.memory.slice(1).spent == {Cause.CRASH: (1.0, 2.0)}
    assert record.memory.slice(1).reason == "goes"


def test_no_record_is_none(tmp_path: Path) -> None:
    assert load_record(tmp_path / "run.json") is None


@pytest.mark.parametrize("text", ["", "{", "{}", '{"memory": {"run_id": 7}}'])
def test_a_damaged_record_is_said_and_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "run.json"
    path.write_text(text)
    with pytest.raises(RecordError, match="is not a run record"):
        load_record(path)
    assert path.read_text() == text
