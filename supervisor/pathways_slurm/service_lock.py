# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The lock of a service's supervisor, and of its root: there is one of each, on any machine."""

import contextlib
import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pathways_slurm.files import PRIVATE_FILE_MODE
from pathways_slurm.processes import ProcessIdentity, identify, is_alive

_SIZE = 512


class AlreadyRunning(Exception):
    """Another process holds the lock; the message has its pid."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a lock; nothing is known of one that could not write it down.

    Attributes:
        process: By its own machine's numbers.
        host: That machine's name.
    """

    process: ProcessIdentity | None = None
    host: str = ""

    @property
    def pid(self) -> int:
        """0 if it is not known."""
        return 0 if self.process is None else self.process.pid

    def is_here(self) -> bool:
        """Whether it is a process that this one can see, by its number."""
        return self.process is not None and is_alive(self.process)

    def __str__(self) -> str:
        return f"pid {self.pid or 'unknown'}{f' on {self.host}' if self.host else ''}"


@contextmanager
def service_lock(path: Path) -> Iterator[None]:
    """Holds the lock of a supervisor or root; the kernel releases it however the process ends.

    Raises:
        AlreadyRunning: Another process holds it.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE_MODE)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyRunning(
                f"this service runs already ({_read(descriptor)}); its state is in {path.parent}"
            ) from None
        # Who holds it is only told to people; the lock holds on a full disk as well.
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, _own_words(), 0)
        yield
    finally:
        os.close(descriptor)


def lock_holder(path: Path) -> Holder | None:
    """Who holds the lock at ``path``, or None if nobody does."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read(descriptor)
    else:
        return None
    finally:
        os.close(descriptor)


def _own_words() -> bytes:
    own = identify(os.getpid())
    words = [] if own is None else [str(own.pid), str(own.start_time), own.boot_id]
    return f"{' '.join([*words, socket.gethostname()])}\n".encode()


def _read(descriptor: int) -> Holder:
    match os.pread(descriptor, _SIZE, 0).decode(errors="replace").split():
        case [pid, start_time, boot_id, host] if pid.isdecimal() and start_time.isdecimal():
            return Holder(ProcessIdentity(int(pid), int(start_time), boot_id), host)
    return Holder()
