# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The directory of a cluster: whose it is, who works on it, and what is known about it."""

import contextlib
import dataclasses
import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurm.devcluster.options import Options

from pathways_slurm.files import PRIVATE_DIR_MODE, make_private_dir, write_atomic

# Only a directory with this file in it is ever cleared.
_MARKER = ".devcluster"
_RECORD = "cluster.json"
_POLL_S = 0.05


class DirectoryError(Exception):
    """The directory can't be used as that of a cluster."""


@dataclass(frozen=True, slots=True)
class Record:
    """What ``up`` wrote when the cluster was ready.

    Attributes:
        options: As asked for.
        network: As chosen.
        controller_port: As chosen.
    """

    options: Options
    network: str
    controller_port: int


class Directory:
    """The directory at ``path``, which is absolute and need not exist."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextlib.contextmanager
    def locked(self, timeout_s: float) -> Iterator[None]:
        """Makes the directory if need be and holds its lock, for one up or down at a time.

        The lock is on the directory itself, so it leaves with it.

        Raises:
            DirectoryError: It is not ours, holds something else, or was locked all the time.
        """
        deadline = time.monotonic() + timeout_s
        while (descriptor := self._try_lock()) is None:
            if time.monotonic() > deadline:
                raise DirectoryError(
                    f"another up or down has been at work on {self.path} for {timeout_s:g} s"
                )
            time.sleep(_POLL_S)
        try:
            self._claim()
            yield
        finally:
            os.close(descriptor)

    def _try_lock(self) -> int | None:
        try:
            # One that is there keeps its mode: it may be that of a cluster for all users.
            if not self.path.exists():
                make_private_dir(self.path)
            descriptor = os.open(
                self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            )
        except FileNotFoundError:
            return None  # a down has just removed it
        except OSError as error:
            raise DirectoryError(f"{self.path} can't be used: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A down may have removed the directory that we have locked.
            if os.path.samestat(os.fstat(descriptor), self.path.stat()):
                return descriptor
        except (BlockingIOError, FileNotFoundError):
            pass
        os.close(descriptor)
        return None

    def _claim(self) -> None:
        status = self.path.stat()
        if status.st_uid != os.getuid():
            raise DirectoryError(f"{self.path} belongs to uid {status.st_uid}, not to you")
        if not self.is_claimed and any(self.path.iterdir()):
            raise DirectoryError(
                f"{self.path} holds something else than a devcluster; choose a directory that is "
                "empty or does not exist"
            )
        (self.path / _MARKER).touch(mode=0o600)

    @property
    def is_claimed(self) -> bool:
        """Whether it is that of a cluster, whole or not."""
        return (self.path / _MARKER).is_file()

    def make(self, relative: str, mode: int = PRIVATE_DIR_MODE) -> Path:
        """Makes a directory below it, or gives it that mode; "" is the directory itself."""
        path = self.path / relative
        make_private_dir(path)
        path.chmod(mode)
        return path

    def read_record(self) -> Record | None:
        """The record, or None if there is none or only half of one."""
        try:
            fields: dict[str, Any] = json.loads((self.path / _RECORD).read_text())
            options = fields.pop("options")
            return Record(Options(directory=self.path, **options), **fields)
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None

    def write_record(self, record: Record) -> None:
        """Says that the cluster is ready."""
        fields = dataclasses.asdict(record)
        del fields["options"]["directory"]
        write_atomic(self.path / _RECORD, json.dumps(fields, indent=2) + "\n")

    def clear(self, *, keep_logs: bool = False) -> None:
        """Empties it but for the marker and, if asked for, the logs."""
        for path in sorted(self.path.rglob("*"), reverse=True):  # children before parents
            if path.name == _MARKER and path.parent == self.path:
                continue
            kept = keep_logs and (path.suffix == ".log" or path.name == "log")
            if path.is_dir() and not path.is_symlink():
                with contextlib.suppress(OSError):  # not empty: it has a log
                    path.rmdir()
            elif not kept:
                path.unlink(missing_ok=True)

    def remove(self) -> None:
        """Removes it with everything below, the marker last."""
        self.clear()
        shutil.rmtree(self.path)
