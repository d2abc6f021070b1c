# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""A directory made equal to a tar stream."""

import io
import tarfile
from pathlib import Path

import pytest

import mirror


def stream(files: dict[str, str], links: dict[str, str] | None = None) -> io.BytesIO:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            entry.mode = 0o700 if name.endswith(".sh") else 0o600
            archive.addfile(entry, io.BytesIO(text.encode()))
        for name, target in (links or {}).items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            archive.addfile(entry)
    buffer.seek(0)
    return buffer


def content(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): path.read_text()
        for path in directory.rglob("*")
        if path.is_file() and path.name != ".mirror.json"
    }


def test_what_differs_is_written_and_what_is_gone_is_removed(tmp_path: Path) -> None:
    mirror.mirror(stream({"a/b.py": "1", "a/run.sh": "2", "c/d/e": "3"}), tmp_path)
    assert content(tmp_path) == {"a/b.py": "1", "a/run.sh": "2", "c/d/e": "3"}
    assert (tmp_path / "a/b.py").stat().st_mode & 0o777 == 0o644
    assert (tmp_path / "a/run.sh").stat().st_mode & 0o777 == 0o755
    kept = (tmp_path / "a/b.py").stat()
    mirror.mirror(stream({"a/b.py": "1", "a/run.sh": "new"}), tmp_path)
    assert content(tmp_path) == {"a/b.py": "1", "a/run.sh": "new"}
    assert (tmp_path / "a/b.py").stat() == kept
    assert not (tmp_path / "c").exists()


def test_what_never_came_from_a_stream_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv/stamp").write_text("mine")
    mirror.mirror(stream({"a": "1"}), tmp_path)
    mirror.mirror(stream({"b": "2"}), tmp_path)
    assert content(tmp_path) == {"b": "2", ".venv/stamp": "mine"}


def test_what_an_interrupted_run_wrote_is_known_to_the_next(tmp_path: Path) -> None:
    whole = stream({"a": "1", "b": "2" * 20000}).getvalue()
    with pytest.raises(tarfile.TarError):
        mirror.mirror(io.BytesIO(whole[:2048]), tmp_path)
    assert (tmp_path / "a").exists()
    mirror.mirror(stream({"c": "3"}), tmp_path)
    assert content(tmp_path) == {"c": "3"}


def test_links_are_kept_and_not_followed(tmp_path: Path) -> None:
    directory, outside = tmp_path / "copy", tmp_path / "outside"
    directory.mkdir()
    outside.write_text("precious")
    (directory / "a").symlink_to(outside)
    mirror.mirror(stream({"a": "1"}, {"link": "a"}), directory)
    mirror.mirror(stream({"a": "1"}, {"link": "a"}), directory)
    assert outside.read_text() == "precious"
    assert (directory / "a").read_text() == "1"
    assert (directory / "link").readlink() == Path("a")


@pytest.mark.parametrize("name", ["../evil", "/evil", "a/../../evil"])
def test_names_that_lead_out_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="leads out"):
        mirror.mirror(stream({name: "1"}), tmp_path)
    assert content(tmp_path) == {}
