# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.enroot import images
from tests.enroot.layer import Layer
from tests.enroot.runner import Enroot

STANDIN = Path(__file__).resolve().parents[1] / "standins" / "enroot"


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


@pytest.fixture(scope="session")
def emulator_image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The emulator's image, alone in its directory."""
    built = images.make_emulator(tmp_path_factory.mktemp("emulator"))
    yield built
    # A fifth of a gigabyte, which pytest would keep for a while.
    built.unlink()


@pytest.fixture
def enroot(enroot_program: Path, tmp_path: Path) -> Enroot:
    """An enroot that has no container yet."""
    return Enroot(enroot_program, tmp_path)


@pytest.fixture
def container(enroot: Enroot, image: Path) -> str:
    """The name of a container of the small image."""
    enroot.output("create", "--name", "small", image)
    return "small"


@pytest.fixture
def layer(enroot_program: Path, tmp_path: Path) -> Layer:
    """The container layer, which has done nothing yet."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "enroot").symlink_to(enroot_program.resolve())
    base = tmp_path / "containers"
    environment = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        # As on nodes where users have none that they can write to.
        "HOME": "/nonexistent",
        "ENROOT_CONFIG_PATH": str(tmp_path / "config"),
        "PATHWAYS_CONTAINER_DIR": str(base),
    }
    return Layer(programs, base, environment)


@pytest.fixture
def registry(enroot_program: Path, layer: Layer, tmp_path: Path) -> Path:
    """The directory in which the stand-in finds the images of registries."""
    if enroot_program.resolve() != STANDIN:
        # A real one asks a real registry, which these tests have none of.
        pytest.skip("needs the stand-in's registry")
    directory = tmp_path / "registry"
    directory.mkdir()
    layer.environment["ENROOT_STANDIN_REGISTRY"] = str(directory)
    return directory
