# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Processes for the tests of guards: a root that lives until told, programs that report."""

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pathways_slurm.processes import ProcessIdentity, identify

PATIENCE_S = 10.0

# Says that it is ready by a file; ignores SIGTERM; leaves a child in a session of its own.
STUBBORN = 'trap "" TERM; setsid sleep 1000 & echo $! > "$1"; while :; do sleep 1000; done'
# The same, but ends at once when asked to.
WILLING = 'setsid sleep 1000 & echo $! > "$1"; exec sleep 1000'


def until[T](look: Callable[[], T], what: str, timeout_s: float = PATIENCE_S) -> T:
    """The first true value that ``look`` returns; fails the test after ``timeout_s``."""
    deadline = time.monotonic() + timeout_s
    while not (value := look()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s:g} s: {what}")
        time.sleep(0.005)
    return value


def known(pid: int) -> ProcessIdentity:
    """The identity of a process that must live."""
    identity = identify(pid)
    assert identity is not None, f"process {pid} has ended"
    return identity


@contextmanager
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that does nothing until it is killed."""
    process = subprocess.Popen(["/bin/sleep", "1000"])
    try:
        yield process
    finally:
        process.kill()
        process.wait()
