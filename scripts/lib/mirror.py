# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Makes a directory equal to a tar stream on standard input, touching only what differs.

``python -c "$(<mirror.py)" DIRECTORY``. Files that the stream no longer has are removed; files that
never came from a stream are left alone. Each file changes in one step. Standard library only.
"""

import json
import sys
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO

# Names what came from a stream. While a run is under way, also what it may bring.
_MANIFEST = ".mirror.json"


def mirror(stream: IO[bytes], directory: Path) -> None:
    """Makes ``directory``, which must exist, equal to the stream.

    Raises:
        ValueError: A name in the stream leads out of the directory.
        OSError: A file can't be written or removed.
        tarfile.TarError: The stream is broken; what came before has been written.
    """
    manifest = directory / _MANIFEST
    before = set(_read(manifest))
    now: set[str] = set()
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for entry in archive:
            if Path(entry.name).is_absolute() or ".." in Path(entry.name).parts:
                raise ValueError(f"{entry.name!r} leads out of {directory}")
            if entry.name not in before | now:
                _write(manifest, before | now | {entry.name})
            now.add(entry.name)
            _place(archive, entry, directory / entry.name)
    for name in before - now:
        (directory / name).unlink(missing_ok=True)
        _remove_empty_parents(directory / name, directory)
    _write(manifest, now)


def _place(archive: tarfile.TarFile, entry: tarfile.TarInfo, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.mirror")
    temporary.unlink(missing_ok=True)
    if entry.issym():
        if path.is_symlink() and str(path.readlink()) == entry.linkname:
            return
        temporary.symlink_to(entry.linkname)
    else:
        file = archive.extractfile(entry)
        if file is None:
            raise ValueError(f"{entry.name!r} is neither a file nor a link")
        data = file.read()
        # Group and others may read it: the umask of whoever made the original is not the user's.
        mode = 0o755 if entry.mode & 0o100 else 0o644
        if (
            path.is_file()
            and not path.is_symlink()
            and path.stat().st_mode & 0o777 == mode
            and path.read_bytes() == data
        ):
            return
        temporary.write_bytes(data)
        temporary.chmod(mode)
    temporary.replace(path)


def _read(manifest: Path) -> list[str]:
    try:
        names = json.loads(manifest.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return []
    return [str(name) for name in names]


def _write(manifest: Path, names: Iterable[str]) -> None:
    temporary = manifest.with_name(f"{manifest.name}.new")
    temporary.write_text(json.dumps(sorted(names)), encoding="utf-8")
    temporary.replace(manifest)


def _remove_empty_parents(path: Path, top: Path) -> None:
    for parent in path.parents:
        if parent == top:
            return
        try:
            parent.rmdir()
        except OSError:  # not empty, or gone with another file
            return


if __name__ == "__main__":
    mirror(sys.stdin.buffer, Path(sys.argv[1]))
