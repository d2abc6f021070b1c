# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Becomes another program that dies with its parent: ``pdeathsig.py PARENT_PID PROGRAM [ARG]...``.

A script of its own and not a hook between fork and exec, because that hook is unsafe in a process
with threads. The kernel sends SIGKILL when the parent's thread that started us ends, also when
nothing in the parent could run any more, and exec keeps that.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Arms the signal and executes the program."""
    parent, program = int(sys.argv[1]), sys.argv[2:]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        error = ctypes.get_errno()
        sys.exit(f"pdeathsig: prctl failed: {os.strerror(error)}")
    # The parent may have ended before the signal was armed.
    if os.getppid() != parent:
        sys.exit(f"pdeathsig: the parent, process {parent}, has ended")
    os.execv(program[0], program)


if __name__ == "__main__":
    main()
