# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The programs of Slurm and munge on this machine."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

# What a cluster runs, and the Debian package that has it.
_PACKAGES = {
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "sinfo": "slurm-client",
    "scontrol": "slurm-client",
    "munged": "munge",
}
_INSTALL = "apt-get install --no-install-recommends slurmctld slurmd slurm-client munge"
# An ordinary user's PATH often lacks the directories of daemons.
_SEARCH = ("/usr/local/sbin", "/usr/sbin", "/sbin")
_TIMEOUT_S = 10.0


class ProgramError(Exception):
    """A program is missing or does not run."""


@dataclass(frozen=True, slots=True)
class Programs:
    """Paths of the programs, and Slurm's version such as (22, 5)."""

    slurmctld: Path
    slurmd: Path
    sinfo: Path
    scontrol: Path
    munged: Path
    version: tuple[int, int]


def find_programs() -> Programs:
    """The installed programs.

    Raises:
        ProgramError: Some are missing (all are named, with what to install), or slurmctld doesn't
            say its version.
    """
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *_SEARCH])
    found = {name: shutil.which(name, path=path) for name in _PACKAGES}
    if missing := [name for name, where in found.items() if where is None]:
        packages = dict.fromkeys(_PACKAGES[name] for name in missing)
        raise ProgramError(
            f"not installed: {', '.join(missing)} "
            f"(Debian's {', '.join(packages)}). What to do, as root: {_INSTALL}"
        )
    paths = {name: Path(where) for name, where in found.items() if where is not None}
    return Programs(**paths, version=_version(paths["slurmctld"]))


def _version(slurmctld: Path) -> tuple[int, int]:
    said = subprocess.run(
        [slurmctld, "-V"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    ).stdout
    return parse_version(said)


def parse_version(said: str) -> tuple[int, int]:
    """The version in what ``slurmctld -V`` says, such as "slurm-wlm 22.05.8" → (22, 5).

    Raises:
        ProgramError: There is none.
    """
    match = re.match(r"slurm\S* (\d+)\.(\d+)", said)
    if match is None:
        raise ProgramError(f"slurmctld -V said {said.strip()!r}, which has no version")
    return int(match[1]), int(match[2])
