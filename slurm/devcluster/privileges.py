# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Whether nodes can be namespaces here. As a program: says what is lacking, and exits 1 if so."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from slurm.devcluster import links

# Their numbers: capabilities(7), linux/capability.h.
_CAPABILITIES = {
    "CAP_NET_ADMIN": 12,
    "CAP_SYS_CHROOT": 18,
    "CAP_SYS_ADMIN": 21,
}
# And the Debian package that has it.
_PROGRAMS = {
    "ip": "iproute2",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "mount": "mount",
    "hostname": "hostname",
}
_PROBE = ("unshare", "--net", "--uts", "--mount", "--pid", "--fork", "--mount-proc")
_PROBE_LINKS = "link add name probe type bridge\nlink add name one type veth peer name two\n"
_PROBE_S = 15.0


def lacking() -> list[str]:
    """Everything that this process lacks to make nodes of namespaces, each with what to do.

    Makes and drops a set of namespaces if nothing else is lacking.
    """
    return list(_lacking()) or list(_refused())


def _lacking() -> Iterator[str]:
    if os.getuid() != 0:
        yield (
            f"nodes that are namespaces take root, this is uid {os.getuid()}: they have networks, "
            "mounts and any user's jobs; run it as root"
        )
    elif missing := missing_capabilities(Path("/proc/self/status").read_text()):
        yield (
            f"this root lacks {', '.join(missing)}, which namespaces take; in a container, start "
            "that with these capabilities, for example as a privileged one"
        )
    missing = [name for name in _PROGRAMS if shutil.which(name, path=links.PATH) is None]
    if missing:
        packages = dict.fromkeys(_PROGRAMS[name] for name in missing)
        yield (
            f"not installed: {', '.join(missing)}. What to do, as root: "
            f"apt-get install --no-install-recommends {' '.join(packages)}"
        )


def missing_capabilities(status: str) -> list[str]:
    """Those that are needed and not in force, by the text of /proc/PID/status."""
    match = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
    have = int(match[1], 16) if match else 0
    return [name for name, number in _CAPABILITIES.items() if not have >> number & 1]


def _refused() -> Iterator[str]:
    """What the kernel has against it, if anything."""
    try:
        done = subprocess.run(
            [*_PROBE, "ip", "-batch", "-"],
            env={"PATH": links.PATH},
            input=_PROBE_LINKS,
            capture_output=True,
            text=True,
            timeout=_PROBE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        yield f"making namespaces took longer than {_PROBE_S:g} s"
        return
    if done.returncode != 0:
        said = " / ".join(done.stderr.split("\n")).strip(" /")
        yield f"the kernel refuses namespaces with a bridge and links in them: {said}"


def main() -> int:
    """Says what is lacking, a line each."""
    faults = lacking()
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
