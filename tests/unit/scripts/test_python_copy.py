# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""A Python copied to another place, for users who can't reach the original."""

import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from python_copy import copy, relocated

PREFIX = Path("/opt/python/3.12")


def program(search_path: bytes | None, tag: int = 29) -> bytes:
    """A minimal ELF program: one segment to load, one dynamic section, one table of strings."""
    strings = b"\0" + (search_path or b"") + b"\0after\0"
    dynamic_at, base = 64 + 2 * 56, 0x400000
    entries = [(5, base + dynamic_at + 48)]
    entries += [] if search_path is None else [(tag, 1)]
    entries += [(0, 0)] * (3 - len(entries))
    dynamic = b"".join(struct.pack("<qQ", *entry) for entry in entries)
    size = dynamic_at + len(dynamic) + len(strings)
    header = b"\x7fELF\x02\x01".ljust(32, b"\0") + struct.pack("<Q", 64)
    header = header.ljust(54, b"\0") + struct.pack("<HH", 56, 2)
    load = struct.pack("<IIQQQQQQ", 1, 0, 0, base, 0, size, size, 0)
    section = struct.pack("<IIQQQQQQ", 2, 0, dynamic_at, base + dynamic_at, 0, 48, 48, 0)
    return header.ljust(64, b"\0") + load + section + dynamic + strings


@pytest.mark.parametrize("tag", [15, 29])
def test_places_below_the_prefix_become_relative(tag: int) -> None:
    old = program(b"/usr/lib/x:/opt/python/3.12/lib", tag)
    new = relocated(old, PREFIX)
    assert new == old.replace(b"/opt/python/3.12/lib\0", b"$ORIGIN/../lib\0\0\0\0\0\0\0")


@pytest.mark.parametrize("search_path", [None, b"", b"$ORIGIN/../lib", b"/usr/lib"])
def test_other_programs_stay_as_they_are(search_path: bytes | None) -> None:
    assert relocated(program(search_path), PREFIX) == program(search_path)


def test_what_has_no_room_or_is_no_program_is_refused() -> None:
    with pytest.raises(ValueError, match="no room"):
        relocated(program(b"/p/lib"), Path("/p"))
    with pytest.raises(ValueError, match="not a 64-bit"):
        relocated(b"#!/bin/sh\n", PREFIX)


def test_the_copy_runs_without_the_original(tmp_path: Path) -> None:
    original = Path(sys.base_prefix)
    executable = (original / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}").resolve()
    if original == Path("/usr"):
        pytest.skip("this Python is the system's, which every user reaches: it is never copied")
    (tmp_path / "new").mkdir()
    destination = tmp_path / "new" / "python"
    copy(original, executable, destination)
    program = destination / "bin" / executable.name
    question = "import ctypes, ssl, venv, ensurepip, sys; print(sys.prefix)"
    done = subprocess.run(
        [program, "-I", "-c", question], env={}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(destination)
    maps = subprocess.run(
        [program, "-I", "-c", "print(open('/proc/self/maps').read())"],
        env={},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert str(destination) in maps
    assert f" {original}/" not in maps
    assert [path.name for path in destination.parent.iterdir()] == ["python"]
    shutil.rmtree(destination)
