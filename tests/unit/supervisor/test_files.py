# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""files.py: what a reader may see, and which modes are on disk."""

import os
from pathlib import Path

import pytest

from pathways_slurm import files


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.mark.parametrize(
    ("data", "expected"), [("naïve\n", "naïve\n".encode()), (b"\x00\xff", b"\x00\xff")]
)
def test_written_file_holds_the_data_and_is_private(
    tmp_path: Path, data: str | bytes, expected: bytes
) -> None:
    path = tmp_path / "file"
    files.write_atomic(path, data)
    assert path.read_bytes() == expected
    assert mode(path) == 0o600


def test_replacing_tightens_a_file_that_was_open_to_others(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    path.chmod(0o666)
    files.write_atomic(path, "new")
    assert path.read_text() == "new"
    assert mode(path) == 0o600


def test_a_symbolic_link_is_replaced_and_its_target_untouched(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("theirs")
    link = tmp_path / "link"
    link.symlink_to(target)
    files.write_atomic(link, "ours")
    assert target.read_text() == "theirs"
    assert not link.is_symlink()


def test_a_failed_write_leaves_the_old_content_and_no_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    files.write_atomic(path, "old")

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        files.write_atomic(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        files.write_atomic(tmp_path / "missing" / "file", "data")


def test_private_dirs_are_made_with_their_parents_whatever_the_umask(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b"
    previous = os.umask(0)
    try:
        files.make_private_dir(path)
    finally:
        os.umask(previous)
    assert mode(path) == mode(path.parent) == 0o700


def test_an_open_directory_is_tightened_but_its_parent_is_left(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    path = tmp_path / "open"
    path.mkdir()
    path.chmod(0o777)
    files.make_private_dir(path)
    assert mode(path) == 0o700
    assert mode(tmp_path) == 0o755


def test_a_file_in_the_way_of_a_directory_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("")
    with pytest.raises(FileExistsError):
        files.make_private_dir(path)
