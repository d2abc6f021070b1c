# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Following a file that others write."""

from pathlib import Path

import pytest

from pathways_slurm.cli.tail import Tail


def test_lines_come_once_and_only_when_they_are_whole(tmp_path: Path) -> None:
    path = tmp_path / "log"
    tail = Tail(path, last=None)
    assert tail.lines() == []
    path.write_bytes(b"one\ntw")
    assert tail.lines() == [b"one"]
    assert tail.lines() == []
    with path.open("ab") as file:
        file.write(b"o\nthree\n")
    assert tail.lines() == [b"two", b"three"]


@pytest.mark.parametrize(
    ("content", "last", "lines"),
    [
        (b"1\n2\n3\n", 2, [b"2", b"3"]),
        (b"1\n2\n3\n", 3, [b"1", b"2", b"3"]),
        (b"1\n2\n3\n", 9, [b"1", b"2", b"3"]),
        (b"1\n2\n3\n", 0, []),
        (b"1\n2\n3", 1, [b"2"]),
        (b"", 3, []),
        (b"\n\n", 1, [b""]),
    ],
)
def test_begins_with_the_last_lines(
    tmp_path: Path, content: bytes, last: int, lines: list[bytes]
) -> None:
    path = tmp_path / "log"
    path.write_bytes(content)
    assert Tail(path, last).lines() == lines


def test_finds_the_last_lines_of_a_file_of_many_blocks(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"".join(b"line %d %s\n" % (i, b"x" * (i % 977)) for i in range(2000)))
    first, *_, last = Tail(path, 500).lines()
    assert first.startswith(b"line 1500 ")
    assert last.startswith(b"line 1999 ")


def test_a_file_that_is_cut_or_replaced_is_read_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"old line\n")
    tail = Tail(path, last=0)
    path.write_bytes(b"cut\n")
    assert tail.lines() == [b"cut"]
    other = tmp_path / "other"
    other.write_bytes(b"another file\n")
    other.replace(path)
    assert tail.lines() == [b"another file"]
