# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Removes what `serve` leaves behind: ``janitor DIRECTORY [ENV_FILE TOKEN]``.

Waits for the end of its standard input, which is the end of `serve` however it comes.
"""

import shutil
import sys
from pathlib import Path

from pathways_emulator import env_file


def main() -> None:
    """Runs the command."""
    directory, *written = sys.argv[1:]
    sys.stdin.buffer.read()
    if written:
        path, token = written
        env_file.remove(Path(path), token)
    shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
