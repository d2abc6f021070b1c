# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What supervisor and resource manager read is what the other wrote."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pathways_slurm.runtime_files import (
    EndKind,
    FirstEnd,
    Notice,
    Orders,
    Report,
    RuntimeFileError,
    SliceOrder,
    SliceReport,
    stamp,
)

REPORT = Report(
    settled=True,
    shutting_down=False,
    slices=(
        SliceReport(0, 1, alive=True),
        SliceReport(
            1, 3, alive=False, reason="saved", notice=Notice("SIGTERM", 12.5), released=True
        ),
        SliceReport(2, 1, alive=False, reason="silent", end=FirstEnd(1, EndKind.SILENT)),
    ),
)
ORDERS = Orders("down", (SliceOrder(1, 3, "acknowledged"),), (SliceOrder(2, 1, "cancelled"),))


def test_a_report_comes_back_as_it_was(tmp_path: Path) -> None:
    REPORT.write(tmp_path / "runtime.json")
    assert Report.read(tmp_path / "runtime.json") == REPORT


def test_the_report_of_an_older_resource_manager_is_read(tmp_path: Path) -> None:
    path = tmp_path / "runtime.json"
    REPORT.write(path)
    raw = json.loads(path.read_text())
    for entry in raw["slices"]:
        del entry["end"]
    path.write_text(json.dumps(raw))
    read = Report.read(path)
    assert read is not None
    assert read.slices == tuple(replace(entry, end=None) for entry in REPORT.slices)


def test_orders_come_back_as_they_were(tmp_path: Path) -> None:
    ORDERS.write(tmp_path / "orders.json")
    assert Orders.read(tmp_path / "orders.json") == ORDERS


def test_no_file_is_no_report_and_no_orders(tmp_path: Path) -> None:
    assert Report.read(tmp_path / "runtime.json") is None
    assert Orders.read(tmp_path / "orders.json") == Orders()


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"settled": true}', '{"slices": 3}'])
def test_what_is_neither_is_refused_with_its_path(tmp_path: Path, text: str) -> None:
    path = tmp_path / "file.json"
    path.write_text(text)
    for read in (Report.read, Orders.read):
        with pytest.raises(RuntimeFileError, match=r"file\.json"):
            read(path)


def test_a_stamp_changes_with_every_writing(tmp_path: Path) -> None:
    path = tmp_path / "orders.json"
    stamps = [stamp(path)]
    for _ in range(3):
        ORDERS.write(path)
        stamps.append(stamp(path))
    assert stamps[0] is None
    assert len(set(stamps)) == len(stamps)
