# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The directory of a cluster."""

import stat
from pathlib import Path

import pytest
from slurm.devcluster.directory import Directory, DirectoryError, Record
from slurm.devcluster.options import Options


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    return Directory(tmp_path / "dev")


def test_it_is_private(directory: Directory) -> None:
    with directory.locked(1.0):
        made = directory.make("a/b/c")
    for path in (directory.path, directory.path / "a", directory.path / "a/b", made):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700


def test_one_that_is_there_keeps_its_mode_while_it_is_locked(directory: Directory) -> None:
    with directory.locked(1.0):
        directory.make("", 0o711)
    with directory.locked(1.0):
        assert stat.S_IMODE(directory.path.stat().st_mode) == 0o711


def test_one_at_a_time(directory: Directory) -> None:
    with (
        directory.locked(1.0),
        pytest.raises(DirectoryError, match="another up or down"),
        Directory(directory.path).locked(0.1),
    ):
        pass
    with directory.locked(1.0):
        pass


def test_a_lock_on_a_directory_that_was_removed_is_no_lock(directory: Directory) -> None:
    with directory.locked(1.0):
        directory.remove()
        assert not directory.path.exists()
        with Directory(directory.path).locked(1.0):
            assert directory.is_claimed


def test_what_holds_something_else_is_left_alone(directory: Directory) -> None:
    directory.path.mkdir()
    (directory.path / "thesis.tex").touch()
    with pytest.raises(DirectoryError, match="holds something else"), directory.locked(1.0):
        pass
    assert list(directory.path.iterdir()) == [directory.path / "thesis.tex"]


def test_a_file_or_a_link_is_refused(directory: Directory, tmp_path: Path) -> None:
    directory.path.touch()
    with pytest.raises(DirectoryError, match="can't be used"), directory.locked(1.0):
        pass
    directory.path.unlink()
    (tmp_path / "elsewhere").mkdir()
    directory.path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DirectoryError, match="can't be used"), directory.locked(1.0):
        pass


def test_clearing_keeps_logs_if_asked_to(directory: Directory) -> None:
    with directory.locked(1.0):
        (directory.make("nodes/a") / "slurmd.log").touch()
        (directory.make("nodes/a/spool") / "state").touch()
        (directory.make("munge") / "key").touch(mode=0o400)
        (directory.path / "dangling").symlink_to("nowhere")
        directory.clear(keep_logs=True)
        left = sorted(str(p.relative_to(directory.path)) for p in directory.path.rglob("*"))
        assert left == [".devcluster", "nodes", "nodes/a", "nodes/a/slurmd.log"]
        directory.clear()
        assert [path.name for path in directory.path.iterdir()] == [".devcluster"]


def test_the_record_comes_back(directory: Directory) -> None:
    record = Record(Options(directory.path, slices=5, root_switch=True), "127.9.0.0/16", 12345)
    with directory.locked(1.0):
        assert directory.read_record() is None
        directory.write_record(record)
        assert directory.read_record() == record


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"options": {"unknown": 1}}', "null"])
def test_half_a_record_is_none(directory: Directory, text: str) -> None:
    with directory.locked(1.0):
        (directory.path / "cluster.json").write_text(text)
        assert directory.read_record() is None
