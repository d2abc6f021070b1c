# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Installs Debian packages, as root."""

import os
import subprocess
from collections.abc import Sequence

_TIMEOUT_S = 600.0
_TAIL = 5


def install(packages: Sequence[str]) -> str | None:
    """Installs the packages, without what they only recommend.

    Returns:
        What went wrong, or None.
    """
    for arguments in (
        ["update", "-q"],
        ["install", "-q", "-y", "--no-install-recommends", *packages],
    ):
        command = ["apt-get", *arguments]
        try:
            done = subprocess.run(
                command,
                env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=_TIMEOUT_S,
                check=False,
            )
        except OSError as error:
            return f"could not run apt-get: {error.strerror}"
        except subprocess.TimeoutExpired:
            return f"{' '.join(command)} took longer than {_TIMEOUT_S:g} s"
        if done.returncode != 0:
            said = " / ".join(done.stdout.splitlines()[-_TAIL:])
            return f"{' '.join(command)} failed: {said}"
    return None
