# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Ordinary JAX programs run through the proxy as they would anywhere."""

from collections.abc import Callable

import pytest
from tests.emulator.proxy.harness import Client


@pytest.mark.parametrize("program", ["arrays", "programs"])
def test_an_unmodified_program_runs(start_client: Callable[..., Client], program: str) -> None:
    client = start_client(program)
    client.expect("done")
    client.finish()
