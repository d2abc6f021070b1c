# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Where the data of suspended slices is kept: a private directory, or a bucket."""

import contextlib
import os
import shutil
import threading
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Protocol

from pathways_slurm.files import PRIVATE_FILE_MODE, make_private_dir, sync_dir

type Chunk = bytes | memoryview


class Scratch(Protocol):
    """Files by name, such as ``slice-1/incarnation-3/session-7``. Thread-safe.

    What goes wrong is an :class:`OSError` of a directory; a bucket's client has errors of its own.
    """

    def write(self, name: str, chunks: Iterable[Chunk]) -> None:
        """Stores a file, whole or not at all; an error of ``chunks`` goes to the caller."""
        ...

    def open(self, name: str) -> IO[bytes]:
        """A file, to be read."""
        ...

    def remove(self, name: str) -> None:
        """Removes a file, or everything below a name; nothing may be there."""
        ...

    def place(self, name: str) -> str:
        """Where a file is, for a human."""
        ...


class LocalScratch:
    """A directory; files are private, and on disk when :meth:`write` returns."""

    def __init__(self, root: Path) -> None:
        self._root = root
        # Between a directory's making and its first file nobody may remove it for being empty.
        self._directories = threading.Lock()

    def write(self, name: str, chunks: Iterable[Chunk]) -> None:
        path = self._root / name
        partial = path.with_name(f".{path.name}.part")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with self._directories:
            make_private_dir(path.parent)
            partial.unlink(missing_ok=True)
            descriptor = os.open(partial, flags, PRIVATE_FILE_MODE)
        try:
            with os.fdopen(descriptor, "wb", buffering=0) as file:
                for chunk in chunks:
                    _write_all(file, chunk)
                os.fsync(file.fileno())
            partial.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                partial.unlink()
            raise
        sync_dir(path.parent)

    def open(self, name: str) -> IO[bytes]:
        return (self._root / name).open("rb")

    def remove(self, name: str) -> None:
        path = self._root / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        with self._directories:
            # Those above it, as far as nothing else is in them.
            for parent in path.parents:
                if not parent.is_relative_to(self._root):
                    break
                with contextlib.suppress(OSError):
                    parent.rmdir()

    def place(self, name: str) -> str:
        return str(self._root / name)


class BucketScratch:
    """Objects of a bucket, where a write is atomic by itself.

    Args:
        root: Such as ``gs://bucket/path``. Nothing is asked of the bucket before it is needed.
    """

    def __init__(self, root: str) -> None:
        self._root = root

    def write(self, name: str, chunks: Iterable[Chunk]) -> None:
        with self._path(name).open("wb") as file:
            for chunk in chunks:
                file.write(chunk)

    def open(self, name: str) -> IO[bytes]:
        file: IO[bytes] = self._path(name).open("rb")
        return file

    def remove(self, name: str) -> None:
        path = self._path(name)
        if path.is_dir():
            path.rmtree()
        else:
            path.unlink(missing_ok=True)

    def place(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _path(self, name: str) -> Any:
        # Only whoever uses a bucket needs its client, which has no type stubs.
        return import_module("etils.epath").Path(self.place(name))


def scratch_of(location: str, owner: str) -> Scratch:
    """The part of a scratch location that belongs to one proxy.

    Args:
        location: As the flag ``--gcs_scratch_location`` gives it: a directory or ``gs://…``.
        owner: Names the proxy: no other one that uses the location may have the same.
    """
    own = f"suspend/{owner.replace('/', '_')}"
    if "://" in location:
        return BucketScratch(f"{location.rstrip('/')}/{own}")
    return LocalScratch(Path(location) / own)


def in_pieces(data: memoryview, check: Callable[[], None], size: int = 16 << 20) -> Iterable[Chunk]:
    """Cuts data, so that ``check`` can end a long write or computation by an exception."""
    for start in range(0, len(data), size):
        check()
        yield data[start : start + size]


def _write_all(file: IO[bytes], chunk: Chunk) -> None:
    rest = memoryview(chunk)
    while len(rest):
        rest = rest[file.write(rest) :]
