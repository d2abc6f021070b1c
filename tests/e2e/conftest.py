# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Real services on networks of their own, and proof that nothing of them is left."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.service import ServiceUnderTest


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceUnderTest]:
    """A service with three slices of 2x2, not started; what is left of it is killed at the end."""
    under_test = ServiceUnderTest(tmp_path / "home")
    yield under_test
    under_test.close()
