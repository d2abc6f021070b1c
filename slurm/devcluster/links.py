# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The network of a cluster whose nodes are namespaces: a bridge on this machine, a link per node.

All names start with a prefix that is made from the cluster's directory, so they are found again
when nothing but the directory's name is known, and no two clusters share one.
"""

import contextlib
import hashlib
import json
import os
import subprocess
from collections.abc import Sequence
from ipaddress import IPv4Network
from pathlib import Path

_DIGITS = 8
_CLASS = Path("/sys/class/net")
_TIMEOUT_S = 15.0

# An ordinary user's PATH often lacks the directories of administration, and so does a daemon's.
PATH = os.pathsep.join(("/usr/local/sbin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"))


class LinkError(Exception):
    """The kernel refused a change of the network; the message has what ``ip`` said."""


def bridge_of(directory: Path) -> str:
    """Name of the cluster's bridge. Like all of them it fits into the kernel's 15 characters."""
    return f"dc{hashlib.sha256(str(directory).encode()).hexdigest()[:_DIGITS]}"


def link_of(directory: Path, index: int) -> str:
    """Name of this machine's end of the link to the node of that index."""
    return f"{bridge_of(directory)}n{index}"


def existing(directory: Path) -> list[str]:
    """The cluster's interfaces that are there, the bridge first."""
    return sorted(path.name for path in _CLASS.glob(f"{bridge_of(directory)}*"))


def used_networks() -> list[IPv4Network]:
    """The networks that this machine reaches otherwise than by its default route.

    Raises:
        LinkError: ``ip`` did not say.
    """
    routes = json.loads(_ip(["-4", "-json", "route", "show", "table", "all"]) or "[]")
    found = []
    for route in routes:
        # "default" and words such as "unreachable default" name no network.
        with contextlib.suppress(ValueError):
            found.append(IPv4Network(route["dst"], strict=False))
    return found


def add_bridge(directory: Path, network: IPv4Network) -> None:
    """Makes the bridge, with the network's first address for this machine. Raises LinkError."""
    bridge = bridge_of(directory)
    address = next(network.hosts())
    change(
        [
            f"link add name {bridge} type bridge",
            f"address add {address}/{network.prefixlen} dev {bridge}",
            f"link set dev {bridge} up",
        ]
    )


def remove(directory: Path, *names: str) -> None:
    """Removes these interfaces of the cluster, or all; fine if there is none. Raises LinkError."""
    wanted = names or existing(directory)
    for name in set(wanted).intersection(existing(directory)):
        # A link also leaves by itself when the node's namespace does, maybe just now.
        with contextlib.suppress(LinkError):
            change([f"link delete dev {name}"])
    if left := set(wanted).intersection(existing(directory)):
        raise LinkError(f"can't be removed: {', '.join(sorted(left))}; it takes root's rights")


def change(lines: Sequence[str]) -> None:
    """Has ``ip`` do what the lines say, up to the first that fails. Raises LinkError."""
    _ip(["-batch", "-"], "".join(f"{line}\n" for line in lines))


def _ip(arguments: Sequence[str], text: str = "") -> str:
    try:
        done = subprocess.run(
            ["ip", *arguments],
            env={"PATH": PATH},
            input=text,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LinkError(f"ip {' '.join(arguments)} did not run: {error}") from error
    if done.returncode != 0:
        what = text.replace("\n", "; ") or " ".join(arguments)
        raise LinkError(f"ip could not do {what!r}: {done.stderr.strip()}")
    return done.stdout
