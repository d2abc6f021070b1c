# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Makes what the tests of a suite use, such as an environment with MaxText."""

import math
import shlex
import subprocess
import time
from pathlib import Path

from suites import ordinary
from suites.declaration import Suite


class SetupError(Exception):
    """It was not made; why is on standard error."""


def run(suite: Suite, root: Path, *, as_user: bool, limit_s: float) -> float:
    """Runs the suite's ``setup``, if it has one, and returns the seconds that it took.

    Args:
        suite: Whose.
        root: The checkout; the first word is a program of it.
        as_user: Run it as the ordinary user, in that user's copy of the checkout.
        limit_s: The seconds that it may take.

    Raises:
        SetupError: It failed, or took too long.
    """
    if not suite.setup:
        return 0.0
    words = [str(root / suite.setup[0]), *suite.setup[1:]]
    command = ordinary.program(root, words) if as_user else words
    said = shlex.join(suite.setup)
    began = time.monotonic()
    try:
        done = subprocess.run(
            command,
            cwd=root,
            stdin=subprocess.DEVNULL,
            check=False,
            timeout=None if math.isinf(limit_s) else limit_s,
        )
    except subprocess.TimeoutExpired:
        raise SetupError(f"{said} took longer than {limit_s:.0f} s") from None
    except OSError as error:
        raise SetupError(f"could not run {said}: {error.strerror}") from None
    if done.returncode != 0:
        raise SetupError(f"{said} ended with exit code {done.returncode}")
    return time.monotonic() - began
