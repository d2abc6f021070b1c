# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The settings of a service whose components run in containers."""

import re
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel

from pathways_slurm import emulator_image
from pathways_slurm.setting_types import AbsolutePath, setting

# As enroot/lib/image.sh takes them.
_REFERENCE = re.compile(
    r"(docker://)?([^@#/\s]+@)?[^@#/\s]*[.:][^@#/\s]*[#/][a-z0-9._/-]+"
    r"(:[A-Za-z0-9._-]+|@sha256:[0-9a-f]{64})"
)
_VALID_IMAGE = "HOST/PATH:TAG, HOST/PATH@sha256:DIGEST, or the absolute path of a squashfs image"
_VALID_DIRECTORY = "an absolute directory without spaces and colons"


def _image(value: str) -> str:
    if value and not value.startswith("/") and not _REFERENCE.fullmatch(value):
        raise ValueError("is no reference of an image")
    return value


def _plain(value: Path) -> Path:
    if re.search(r"[\s:]", str(value)):
        raise ValueError("has a space or a colon")
    return value


_Image = Annotated[str, AfterValidator(_image)]
_Directory = Annotated[AbsolutePath, AfterValidator(_plain)]


class ContainerSettings(BaseModel):
    """Where images and containers are; no effect without containers."""

    server_image: _Image = setting(
        "PATHWAYS_SERVER_IMAGE",
        "Image of resource manager and workers",
        _VALID_IMAGE,
        default="",
        default_text="the one for the environment's JAX, or the emulator's own",
    )
    proxy_image: _Image = setting(
        "PATHWAYS_PROXY_IMAGE",
        "Image of the IFRT proxy",
        _VALID_IMAGE,
        default="",
        default_text="the one for the environment's JAX, or the emulator's own",
    )
    image_dir: _Directory = setting(
        "PATHWAYS_IMAGE_DIR",
        "Where imported images and the emulator's own are kept; shared by all nodes",
        _VALID_DIRECTORY,
        default=str(emulator_image.DIRECTORY),
        default_text="environments/images in the checkout",
    )
    container_dir: _Directory | None = setting(
        "PATHWAYS_CONTAINER_DIR",
        "Where each node unpacks images, on a disk of its own",
        _VALID_DIRECTORY,
        default=None,
        default_text="/tmp/pathways-UID",
    )
