# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Locks that end with the processes that hold them, however those end.

flock(2) belongs to the open file: every process that inherited the descriptor holds the lock, and
it is free once the last of them has ended or closed it. Never remove a lock file that is in use.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

_POLL_S = 0.005


def try_lock(path: Path) -> int | None:
    """Takes the lock of ``path``, which is created if need be.

    Returns:
        A descriptor that holds the lock until it is closed, or None if another holds it.

    Raises:
        OSError: The file can't be opened.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


@contextlib.contextmanager
def locked(path: Path, timeout_s: float) -> Iterator[None]:
    """Holds the lock of ``path``, for short critical sections.

    Raises:
        TimeoutError: It was not free within ``timeout_s`` seconds.
        OSError: The file can't be opened.
    """
    deadline = time.monotonic() + timeout_s
    while (descriptor := try_lock(path)) is None:
        if time.monotonic() >= deadline:
            raise TimeoutError(f"{path} has been locked by another process for {timeout_s:g} s")
        time.sleep(_POLL_S)
    try:
        yield
    finally:
        os.close(descriptor)
