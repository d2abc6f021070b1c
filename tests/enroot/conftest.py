# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest
from tests.enroot import images
from tests.enroot.runner import Enroot


@pytest.fixture(scope="session")
def enroot_program(pytestconfig: pytest.Config) -> Path:
    """The enroot to test with: that of --enroot, or the stand-in."""
    given: Path = pytestconfig.getoption("enroot")
    assert given.is_file(), f"--enroot {given} is no file"
    return given


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    scratch = tmp_path_factory.mktemp("image")
    built = scratch / "busybox.sqsh"
    images.build(built, scratch / "root")
    return built


@pytest.fixture
def enroot(enroot_program: Path, tmp_path: Path) -> Enroot:
    """An enroot that has no container yet."""
    return Enroot(enroot_program, tmp_path)


@pytest.fixture
def container(enroot: Enroot, image: Path) -> str:
    """The name of a container of the small image."""
    enroot.output("create", "--name", "small", image)
    return "small"
