# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Copies the Python that runs it to another place, such that it runs there.

``PYTHON -I python_copy.py DIRECTORY``. For users who can't reach the original. Python finds its
library by where its executable is; the one thing that names the old place is where the executable
looks for libpython, if that is a shared library. Standard library only.
"""

import os
import shutil
import struct
import sys
import tempfile
from pathlib import Path

# Most of the size, and nothing that an environment needs: it gets packages of its own.
_LEFT_OUT = ("__pycache__", "test", "tests", "idlelib", "site-packages", "*.a", "share")

_EI_64_BIT_LITTLE_ENDIAN = b"\x7fELF\x02\x01"
_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NULL, _DT_STRTAB, _DT_RPATH, _DT_RUNPATH = 0, 5, 15, 29


def copy(prefix: Path, executable: Path, destination: Path) -> None:
    """Copies the installation at ``prefix``; ``destination`` appears whole or not at all.

    Raises:
        OSError: Something can't be read or written.
        ValueError: The executable can't be made to find its library.
    """
    if destination.exists():
        return
    with tempfile.TemporaryDirectory(dir=destination.parent, prefix=".copy-") as scratch:
        new = Path(scratch) / "python"
        shutil.copytree(prefix, new, symlinks=True, ignore=shutil.ignore_patterns(*_LEFT_OUT))
        version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        (new / "lib" / version / "site-packages").mkdir()
        program = new / "bin" / executable.name
        program.write_bytes(relocated(program.read_bytes(), prefix))
        for path in (new, *new.rglob("*")):
            if not path.is_symlink():
                path.chmod(path.stat().st_mode & 0o755 | (0o755 if path.is_dir() else 0o644))
        new.rename(destination)


def relocated(program: bytes, prefix: Path) -> bytes:
    """An ELF program of PREFIX/bin with the places below ``prefix`` where it looks for libraries
    made relative to itself. All else stays, to the byte.

    Raises:
        ValueError: It is not a 64-bit little-endian ELF program, or the new text is longer.
    """
    if not program.startswith(_EI_64_BIT_LITTLE_ENDIAN):
        raise ValueError("not a 64-bit little-endian ELF program")
    start, end = _search_path(program)
    if start == end:
        return program
    old = program[start:end]
    places = [_relative(place, prefix) for place in os.fsdecode(old).split(":")]
    new = os.fsencode(":".join(places))
    if len(new) > len(old):
        raise ValueError(f"no room for {new!r} in the place of {old!r}")
    return program[:start] + new.ljust(len(old), b"\0") + program[end:]


def _relative(place: str, prefix: Path) -> str:
    if not Path(place).is_relative_to(prefix):
        return place
    return f"$ORIGIN/../{Path(place).relative_to(prefix)}"


def _search_path(program: bytes) -> tuple[int, int]:
    """Where the program's RUNPATH (or RPATH) is; two equal numbers if it has none."""
    header_offset = struct.unpack_from("<Q", program, 32)[0]
    size, count = struct.unpack_from("<HH", program, 54)
    segments = [
        struct.unpack_from("<IIQQQQQQ", program, header_offset + number * size)
        for number in range(count)
    ]
    entries: dict[int, int] = {}
    for kind, _, offset, _, _, length, _, _ in segments:
        if kind == _PT_DYNAMIC:
            for position in range(offset, offset + length, 16):
                tag, value = struct.unpack_from("<qQ", program, position)
                if tag == _DT_NULL:
                    break
                entries[tag] = value
    name = entries.get(_DT_RUNPATH, entries.get(_DT_RPATH))
    if name is None:
        return 0, 0
    address = entries[_DT_STRTAB] + name
    for kind, _, offset, virtual, _, length, _, _ in segments:
        if kind == _PT_LOAD and virtual <= address < virtual + length:
            start = address - virtual + offset
            return start, program.index(b"\0", start)
    raise ValueError("its search path for libraries is in no segment")


if __name__ == "__main__":
    copy(Path(sys.base_prefix), Path(sys.executable).resolve(), Path(sys.argv[1]))
