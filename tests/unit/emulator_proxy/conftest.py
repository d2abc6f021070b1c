# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Fixtures: a proxy without its server."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.emulator_proxy.setting import Setting

from pathways_emulator.proxy.cpu_executor import CpuExecutor


@pytest.fixture(scope="module")
def executor() -> Iterator[CpuExecutor]:
    executor = CpuExecutor(8)
    yield executor
    executor.close()


@pytest.fixture
def setting(executor: CpuExecutor, tmp_path: Path) -> Iterator[Setting]:
    setting = Setting(executor, tmp_path / "scratch")
    yield setting
    setting.registry.close_all()
    assert not setting.root.exists()
