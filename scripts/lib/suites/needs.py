# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What suites need of a machine. Each check says why the machine lacks it, or nothing."""

import errno
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[3]

# Far from the networks that services and tests use.
_PROBE_ADDRESS = "127.203.0.113"

# What a Slurm on one machine consists of, and the Debian packages that have it.
_SLURM_PROGRAMS = ("slurmctld", "slurmd", "sbatch", "munged")
_SLURM_PACKAGES = ("slurmctld", "slurmd", "slurm-client", "munge")

# What makes small container images, and takes them apart again.
_IMAGE_PROGRAMS = ("busybox", "mksquashfs", "unsquashfs")
_IMAGE_PACKAGES = ("busybox-static", "squashfs-tools")

# What lets an ordinary user have root do one thing, by a rule that is a regular expression.
_SUDO_PROGRAMS = ("sudo", "visudo")
_SUDO_PACKAGES = ("sudo",)
_SUDO_VERSION = (1, 9, 10)

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
    return _missing(_SLURM_PROGRAMS, _SLURM_PACKAGES)


def sudo() -> str | None:
    """The sudo that knows regular expressions: 1.9.10 or newer."""
    if (reason := _missing(_SUDO_PROGRAMS, _SUDO_PACKAGES)) is not None:
        return reason
    done = subprocess.run(
        ["sudo", "--version"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.search(r"Sudo version (\d+)\.(\d+)\.(\d+)", done.stdout)
    if found is None or tuple(map(int, found.groups())) < _SUDO_VERSION:
        said = found[0] if found else (done.stderr or done.stdout).strip()
        return f"needs sudo {'.'.join(map(str, _SUDO_VERSION))} or newer, this is {said!r}"
    return None


def container_images() -> str | None:
    """The programs that make container images."""
    return _missing(_IMAGE_PROGRAMS, _IMAGE_PACKAGES)


def user_namespaces() -> str | None:
    """Namespaces without privileges, in which containers run."""
    try:
        done = subprocess.run(
            ["unshare", "--user", "--mount", "--map-current-user", "true"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError as error:
        return f"needs unshare (Debian's util-linux): {error.strerror}"
    if done.returncode != 0:
        return (
            f"needs user namespaces ({done.stderr.strip()}); allow them: sysctl "
            "user.max_user_namespaces, kernel.unprivileged_userns_clone, "
            "kernel.apparmor_restrict_unprivileged_userns"
        )
    return None


def node_namespaces() -> str | None:
    """Nodes of a devcluster that are machines of their own, which takes root."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "slurm.devcluster.privileges"],
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    said = "; ".join(done.stdout.splitlines())
    return None if done.returncode == 0 else f"needs namespaces: {said}"


def _missing(programs: Iterable[str], packages: Iterable[str]) -> str | None:
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *_DAEMON_DIRECTORIES])
    missing = [name for name in programs if shutil.which(name, path=path) is None]
    if not missing:
        return None
    return (
        f"needs {', '.join(missing)}; as root: "
        f"apt-get install --no-install-recommends {' '.join(packages)}"
    )


NEEDS: dict[str, Callable[[], str | None]] = {
    "linux": linux,
    "loopback-networks": loopback_networks,
    "slurm": slurm,
    "sudo": sudo,
    "container-images": container_images,
    "user-namespaces": user_namespaces,
    "node-namespaces": node_namespaces,
}

# Need → the Debian packages that meet it.
PACKAGES: dict[str, tuple[str, ...]] = {
    "slurm": _SLURM_PACKAGES,
    "sudo": _SUDO_PACKAGES,
    "container-images": _IMAGE_PACKAGES,
    "node-namespaces": ("iproute2",),
}


def lacking(needs: Iterable[str]) -> str | None:
    """The first reason why a suite with these needs cannot run here, or None."""
    return next((reason for need in needs if (reason := NEEDS[need]()) is not None), None)
