# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What suites need of a machine. Each check says why the machine lacks it, or nothing."""

import errno
import os
import shutil
import socket
import sys
from collections.abc import Callable, Iterable

# Far from the networks that services and tests use.
_PROBE_ADDRESS = "127.203.0.113"

# What a Slurm on one machine consists of, and the Debian packages that have it.
_SLURM_PROGRAMS = ("slurmctld", "slurmd", "sbatch", "munged")
_SLURM_PACKAGES = ("slurmctld", "slurmd", "slurm-client", "munge")

# An ordinary user's PATH often lacks the directories of daemons.
_DAEMON_DIRECTORIES = ("/usr/local/sbin", "/usr/sbin", "/sbin")


def linux() -> str | None:
    """Process supervision as the project does it: pidfds and parent-death signals."""
    if sys.platform != "linux":
        return f"needs Linux, this is {sys.platform}"
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError as error:
        return f"needs pidfd_open (Linux 5.3 or newer): {error.strerror}"
    return None


def loopback_networks() -> str | None:
    """Every address of 127.0.0.0/8, not just 127.0.0.1: each host of a slice has its own."""
    with socket.socket() as probe:
        try:
            probe.bind((_PROBE_ADDRESS, 0))
        except OSError as error:
            name = errno.errorcode.get(error.errno or 0, "an error")
            return f"needs all of 127.0.0.0/8, but binding {_PROBE_ADDRESS} gave {name}"
    return None


def slurm() -> str | None:
    """The programs of a Slurm cluster."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *_DAEMON_DIRECTORIES])
    missing = [name for name in _SLURM_PROGRAMS if shutil.which(name, path=path) is None]
    if not missing:
        return None
    return (
        f"needs {', '.join(missing)}; as root: "
        f"apt-get install --no-install-recommends {' '.join(_SLURM_PACKAGES)}"
    )


NEEDS: dict[str, Callable[[], str | None]] = {
    "linux": linux,
    "loopback-networks": loopback_networks,
    "slurm": slurm,
}

# Need → the Debian packages that meet it.
PACKAGES: dict[str, tuple[str, ...]] = {"slurm": _SLURM_PACKAGES}


def lacking(needs: Iterable[str]) -> str | None:
    """The first reason why a suite with these needs cannot run here, or None."""
    return next((reason for need in needs if (reason := NEEDS[need]()) is not None), None)
