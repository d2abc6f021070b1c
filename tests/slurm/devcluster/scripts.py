# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""up.sh and down.sh, as somebody at a terminal calls them."""

import subprocess
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[3] / "slurm" / "devcluster"
MOST_S = 60.0


class Scripts:
    """The scripts, called with options that are the same every time."""

    def __init__(self, *always: str) -> None:
        self._always = always

    def start(self, script: str, directory: Path, *options: str) -> subprocess.Popen[str]:
        """Starts a script on the cluster at ``directory``."""
        return subprocess.Popen(
            [FOLDER / script, *self._always, "--dir", directory, *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def call(self, script: str, directory: Path, *options: str, code: int = 0) -> str:
        """Calls a script, which must end with this exit code, and returns what it says."""
        process = self.start(script, directory, *options)
        said, _ = process.communicate(timeout=MOST_S)
        assert process.returncode == code, said
        return said
