# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Components in containers: of which image, started how, and with which of the layer's settings."""

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pathways_slurm import emulator_image, images
from pathways_slurm.images import Images

if TYPE_CHECKING:
    from pathways_slurm.config import Settings

LAYER = emulator_image.ROOT / "enroot"

RUN = LAYER / "run_in_container.sh"
"""Becomes a component in a container: IMAGE NAME [--mount SRC:DST]... -- PROGRAM..."""

RUN_WORKER = LAYER / "run_worker.sh"
"""The same for a host of a slice, which names it; so without NAME."""

REMOVE_STALE = LAYER / "remove_stale.sh"
"""Removes from a node what containers of ended components have left."""

_VERSION_TAG = re.compile(r":jax-([0-9]+(?:\.[0-9]+)+)$")


def installed_jax() -> str | None:
    """Version of the JAX that is installed beside this program; None if there is none."""
    # Here, because it is slow to import and every command imports this module.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("jaxlib")
    except PackageNotFoundError:
        return None


def images_of(settings: "Settings") -> Images:
    """The images of a service. One that is a file need not be there yet.

    Raises:
        ImageError: None are known for the JAX that is installed here.
    """
    given = {
        images.SERVER_VARIABLE: settings.server_image,
        images.PROXY_VARIABLE: settings.proxy_image,
    }
    version = installed_jax()
    if settings.runtime == "emulator" and version is not None:
        return images.emulator_images(version, settings.image_dir, given)
    return images.load_images(version, given)


def stated_jax(reference: str) -> str | None:
    """The version of JAX that an image says it is for, by a tag such as ``jax-0.11.1``."""
    found = _VERSION_TAG.search(reference)
    return None if found is None else found[1]


def start_command(
    settings: "Settings", image: str, name: str | None, program: Sequence[str]
) -> tuple[str, ...]:
    """The command that becomes ``program``, the words of one inside ``image``.

    Args:
        settings: Of the service.
        image: A reference.
        name: Of the component; None for a host of a slice.
        program: An absolute path in the image, and arguments.
    """
    mounted = [settings.paths.directory]
    # Where a directory is in another one, the outer one must come first.
    if settings.scratch_dir is not None:
        mounted = sorted({*mounted, settings.scratch_dir})
    return (
        *((str(RUN_WORKER), image) if name is None else (str(RUN), image, name)),
        *(word for path in mounted for word in ("--mount", f"{path}:{path}")),
        "--",
        *program,
    )


def remove_stale(settings: "Settings") -> None:
    """Removes from this machine what containers of ended components have left.

    What can't be removed is left to the next start; the script says why on standard error.
    """
    environment = {**os.environ, **layer_environment(settings, os.environ)}
    subprocess.run([REMOVE_STALE], env=environment, stdin=subprocess.DEVNULL, check=False)


def layer_environment(settings: "Settings", environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of the layer itself, which no component sees.

    Args:
        settings: Of the service.
        environ: Of this process; says where Enroot's own configuration is.
    """
    own = {"PATHWAYS_IMAGE_DIR": str(settings.image_dir)}
    if settings.container_dir is not None:
        own["PATHWAYS_CONTAINER_DIR"] = str(settings.container_dir)
    # A batch job has no XDG_* of the session that it was submitted from.
    if environ.get("ENROOT_CONFIG_PATH"):
        own["ENROOT_CONFIG_PATH"] = environ["ENROOT_CONFIG_PATH"]
    elif environ.get("XDG_CONFIG_HOME"):
        own["ENROOT_CONFIG_PATH"] = str(Path(environ["XDG_CONFIG_HOME"]) / "enroot")
    return own
