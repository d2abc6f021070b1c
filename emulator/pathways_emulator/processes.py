# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Processes of this machine, as /proc tells of them."""

from pathlib import Path


def pid_space() -> str:
    """A word that two processes have in common if a process id means the same to both.

    That is the boot of a machine and the PID namespace: containers on one machine count anew.
    Empty if this system does not tell.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def can_run(pid: int) -> bool:
    """Whether the process lives and has not been stopped by a signal."""
    try:
        stat = Path("/proc", str(pid), "stat").read_bytes()
    except OSError:
        return False
    # The name before the state may contain anything.
    return stat.rpartition(b")")[2].split()[0] not in (b"T", b"t", b"X", b"Z")
