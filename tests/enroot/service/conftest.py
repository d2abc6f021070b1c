# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What a service in containers is given: the emulator's image, and an enroot on PATH."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def containers(tmp_path: Path) -> Iterator[Path]:
    """PATHWAYS_CONTAINER_DIR. Unpacked, the image has half a gigabyte, which pytest would keep."""
    directory = tmp_path / "containers"
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def in_containers(
    enroot_program: Path, emulator_image: Path, containers: Path, tmp_path: Path
) -> dict[str, str]:
    """The settings by which a service runs in containers."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "enroot").symlink_to(enroot_program.resolve())
    return {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PATHWAYS_CONTAINER": "enroot",
        "PATHWAYS_CONTAINER_DIR": str(containers),
        "PATHWAYS_IMAGE_DIR": str(emulator_image.parent),
        "ENROOT_CONFIG_PATH": str(tmp_path / "config"),
    }
