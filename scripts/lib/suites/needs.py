# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What suites need of a machine. Each check says why the machine lacks it, or nothing."""

import errno
import os
import socket
import sys
from collections.abc import Callable, Iterable

# Far from the networks that services and tests use.
_PROBE_ADDRESS = "127.203.0.113"


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


NEEDS: dict[str, Callable[[], str | None]] = {
    "linux": linux,
    "loopback-networks": loopback_networks,
}


def lacking(needs: Iterable[str]) -> str | None:
    """The first reason why a suite with these needs cannot run here, or None."""
    return next((reason for need in needs if (reason := NEEDS[need]()) is not None), None)
