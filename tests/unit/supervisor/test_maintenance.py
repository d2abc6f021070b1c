# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Requests for maintenance on disk."""

import json
import stat
from pathlib import Path

import pytest

from pathways_slurm import maintenance
from pathways_slurm.maintenance import Request, RequestError

REQUEST = Request(deadline=1_800_000_300.5, reason="kernel update", requested=1_800_000_000.0)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "state" / "maintenance"


def test_what_was_asked_for_is_read_again(directory: Path) -> None:
    maintenance.make(directory, 0, REQUEST)
    maintenance.make(directory, 12, Request(2.0, "", 1.0))
    assert maintenance.requests(directory) == {0: REQUEST, 12: Request(2.0, "", 1.0)}
    assert json.loads((directory / "slice-0.json").read_text()) == {
        "deadline": 1_800_000_300.5,
        "reason": "kernel update",
        "requested": 1_800_000_000.0,
    }


def test_a_request_is_private(directory: Path) -> None:
    maintenance.make(directory, 3, REQUEST)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_IMODE((directory / "slice-3.json").stat().st_mode) == 0o600


def test_a_later_request_replaces_the_first(directory: Path) -> None:
    maintenance.make(directory, 3, REQUEST)
    maintenance.make(directory, 3, Request(9.0, "again", 8.0))
    assert maintenance.requests(directory) == {3: Request(9.0, "again", 8.0)}


def test_a_request_is_withdrawn_once(directory: Path) -> None:
    assert not maintenance.withdraw(directory, 3)
    maintenance.make(directory, 3, REQUEST)
    assert maintenance.withdraw(directory, 3)
    assert not maintenance.withdraw(directory, 3)
    assert maintenance.requests(directory) == {}


def test_without_a_directory_there_are_none(directory: Path) -> None:
    assert maintenance.requests(directory) == {}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not JSON"),
        ("[]", "not an object of deadline, reason, requested"),
        ('{"deadline": 5, "reason": ""}', "not an object of"),
        ('{"deadline": 5, "reason": "", "requested": 4, "more": 1}', "not an object of"),
        ('{"deadline": 5, "reason": 1, "requested": 4}', "reason is 1; it must be text"),
        ('{"deadline": "5", "reason": "", "requested": 4}', "deadline is '5'"),
        ('{"deadline": true, "reason": "", "requested": 4}', "deadline is True"),
        ('{"deadline": Infinity, "reason": "", "requested": 4}', "deadline is inf"),
        ('{"deadline": NaN, "reason": "", "requested": 4}', "deadline is nan"),
        ('{"deadline": 5, "reason": "", "requested": -1}', "requested is -1"),
    ],
)
def test_a_broken_file_is_a_warning_and_hides_no_other(
    directory: Path, text: str, why: str
) -> None:
    with pytest.raises(RequestError, match=why):
        maintenance.parse(text)
    maintenance.make(directory, 0, REQUEST)
    (directory / "slice-1.json").write_text(text)
    warnings: list[str] = []
    assert maintenance.requests(directory, warnings.append) == {0: REQUEST}
    (warning,) = warnings
    assert f"{directory}/slice-1.json is ignored" in warning
    assert why in warning
    assert "pathways-slurm maintenance 1" in warning


@pytest.mark.parametrize("name", ["slice-01.json", "slice-.json", "slice--1.json", "slice-1", "x"])
def test_a_name_that_is_none_is_a_warning(directory: Path, name: str) -> None:
    assert maintenance.index_of(name) is None
    maintenance.make(directory, 0, REQUEST)
    (directory / name).write_text(maintenance.render(REQUEST))
    warnings: list[str] = []
    assert maintenance.requests(directory, warnings.append) == {0: REQUEST}
    (warning,) = warnings
    assert f"{directory}/{name} is ignored" in warning


def test_the_draft_of_a_request_is_none(directory: Path) -> None:
    maintenance.make(directory, 0, REQUEST)
    (directory / ".slice-1.json.abc.tmp").write_text("half")
    warnings: list[str] = []
    assert maintenance.requests(directory, warnings.append) == {0: REQUEST}
    assert warnings == []


def test_a_file_that_can_not_be_read_says_nothing_about_requests(directory: Path) -> None:
    """Taken for a withdrawal, it would start a slice on nodes that are being worked on."""
    maintenance.make(directory, 0, REQUEST)
    (directory / "slice-1.json").mkdir()  # which also root can not read
    with pytest.raises(OSError, match="slice-1"):
        maintenance.requests(directory)
