# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The schedulers that must keep the contract."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.contract.harness import SchedulerHarness
from tests.contract.local_harness import LocalHarness

_HARNESSES: dict[str, type[SchedulerHarness]] = {"local": LocalHarness}


@pytest.fixture(params=sorted(_HARNESSES))
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SchedulerHarness]:
    """Each scheduler in turn."""
    made = _HARNESSES[request.param](tmp_path)
    yield made
    made.close()


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalHarness]:
    """The local scheduler, for what only it promises."""
    made = LocalHarness(tmp_path)
    yield made
    made.close()
