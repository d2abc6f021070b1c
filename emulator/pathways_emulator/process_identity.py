# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Where a process id counts."""

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
