# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Suites that root runs as an ordinary user, in that user's copy of the checkout; see user.sh."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

_SCRIPT = Path("scripts/lib/ordinary.sh")


class UserError(Exception):
    """The user, or its copy of the checkout, could not be made; why is on standard error."""


def prepare(root: Path) -> int:
    """Makes the user and its copy of the checkout, or brings them up to date; returns its uid.

    Raises:
        UserError: It did not work.
    """
    done = subprocess.run(
        [root / _SCRIPT, "id", "-u"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise UserError("could not set up an ordinary user to run it as")
    return int(done.stdout)


def command(root: Path, arguments: Sequence[str]) -> list[str]:
    """The command that runs the user's Python with these arguments."""
    return program(root, [".venv/bin/python", *arguments])


def program(root: Path, words: Sequence[str]) -> list[str]:
    """The command that runs a program of the checkout as the user.

    Paths below ``root`` among the words become relative: the user's copy is the working directory.
    """
    prefix = f"{root}/"
    return [str(root / _SCRIPT), *(word.removeprefix(prefix) for word in words)]
