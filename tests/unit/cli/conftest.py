# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""A service that is none, for the commands that wait for one."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.unit.cli.waiting import Case


@pytest.fixture
def case(tmp_path: Path) -> Iterator[Case]:
    """One that is there; what it started ends with the test."""
    with ExitStack() as stack:
        yield Case(tmp_path, stack)
