# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""notices.json, and the answers of programs to it."""

import json
from pathlib import Path

import pytest

from pathways_slurm import notices
from pathways_slurm.notices import Back, Going, Notices, NoticesError, Shutdown

FULL = Notices(
    "run7",
    12,
    (Going(1, 3, 1700000024.5, "host 0 got SIGTERM"),),
    (Back(0, 2, 1700000000.0),),
    Shutdown("asked to by SIGTERM", 1700000001.0),
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / notices.FILE


@pytest.mark.parametrize("content", [Notices("run7"), FULL])
def test_what_is_written_is_read(path: Path, content: Notices) -> None:
    notices.write(path, content)
    assert notices.read(path) == content
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_file_is_json_with_a_version_and_these_names(path: Path) -> None:
    notices.write(path, FULL)
    assert json.loads(path.read_text()) == {
        "version": 1,
        "run_id": "run7",
        "sequence": 12,
        "going": [
            {
                "slice": 1,
                "incarnation": 3,
                "deadline": 1700000024.5,
                "reason": "host 0 got SIGTERM",
            }
        ],
        "back": [{"slice": 0, "incarnation": 2, "since": 1700000000.0}],
        "shutdown": {"reason": "asked to by SIGTERM", "since": 1700000001.0},
    }


def test_the_number_grows_with_each_change_and_only_then() -> None:
    first = Notices("run7").changed_to(FULL.going, (), None)
    assert (first.sequence, first.going) == (1, FULL.going)
    assert first.changed_to(FULL.going, (), None) is first
    assert first.changed_to((), (), None) == Notices("run7", 2)


def test_no_file_is_no_service(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        notices.read(path)


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        ("", "Expecting value"),
        ("[]", "it has no version"),
        ('{"run_id": "x"}', "it has no version"),
        ('{"version": 1}', "is not an object of run_id, sequence, going, back, shutdown"),
        ('"slice": true', "slice is True, which is no int"),
        ('"slice": "1"', "slice is '1', which is no int"),
        ('"slice": 1, "more": 2', "is not an object of slice, incarnation, deadline, reason"),
    ],
)
def test_what_is_no_such_file_is_refused_with_the_reason(
    path: Path, damage: str, complaint: str
) -> None:
    notices.write(path, FULL)
    if damage.startswith('"slice"'):
        damage = path.read_text().replace('"slice": 1', damage)
    path.write_text(damage)
    with pytest.raises(NoticesError, match=complaint):
        notices.read(path)


def test_another_version_is_refused_by_its_name(path: Path) -> None:
    notices.write(path, FULL)
    path.write_text(path.read_text().replace('"version": 1', '"version": 2'))
    with pytest.raises(NoticesError, match="of version 2, and this program reads version 1 only"):
        notices.read(path)


def test_a_file_that_others_can_write_to_is_not_believed(path: Path) -> None:
    notices.write(path, FULL)
    path.chmod(0o620)
    with pytest.raises(NoticesError, match="chmod 600"):
        notices.read(path)


def test_answers_are_files_of_strict_names(tmp_path: Path) -> None:
    directory = tmp_path / notices.DIRECTORY
    assert notices.acknowledged(directory) == frozenset()
    notices.acknowledge(directory, 0, 2)
    notices.acknowledge(directory, 13, 1)
    notices.acknowledge(directory, 13, 1)
    for stray in ("slice-01-incarnation-1", "slice-1-incarnation-0", "slice-1", ".nfs0001"):
        (directory / stray).touch()
    assert notices.acknowledged(directory) == {(0, 2), (13, 1)}
    assert directory.stat().st_mode & 0o777 == 0o700
    assert (directory / "slice-0-incarnation-2").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(("slice_index", "incarnation"), [(-1, 1), (0, 0), (1_000_000, 1)])
def test_no_run_of_a_slice_can_not_be_answered_for(
    tmp_path: Path, slice_index: int, incarnation: int
) -> None:
    with pytest.raises(ValueError, match="names no run of a slice"):
        notices.acknowledge(tmp_path, slice_index, incarnation)
    assert list(tmp_path.iterdir()) == []


def test_settled_answers_are_forgotten(tmp_path: Path) -> None:
    for index in range(3):
        notices.acknowledge(tmp_path, index, 1)
    notices.forget(tmp_path, [(0, 1), (7, 7)])
    assert notices.acknowledged(tmp_path) == {(1, 1), (2, 1)}


def test_a_new_run_begins_without_the_words_of_the_last_one(tmp_path: Path, path: Path) -> None:
    directory = tmp_path / notices.DIRECTORY
    notices.remove(path, directory)
    notices.write(path, FULL)
    notices.acknowledge(directory, 1, 3)
    notices.remove(path, directory)
    assert not path.exists()
    assert notices.acknowledged(directory) == frozenset()
