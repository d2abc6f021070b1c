# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Which file is the emulator's container image.

``enroot/emulator_image.py`` makes it. The name tells all that decides whether an image is the right
one: the version of JAX, and a hash of this project's files in it. The Python that runs here is no
part of it, since an image brings its own.
"""

import hashlib
import shlex
import sys
from pathlib import Path

from pathways_slurm.jax_version import release

ROOT = Path(__file__).resolve().parents[2]

MAKER = ROOT / "enroot" / "emulator_image.py"
"""The program that makes images."""

SOURCES = ("emulator/pathways_emulator", "supervisor/pathways_slurm")
"""The packages of this project that are in the image, below the repository's folder."""

DIRECTORY = ROOT / "environments" / "images"
"""Where images are by default."""

OLDEST_JAX = "0.12.0"
"""The oldest JAX that the emulator itself runs on."""

_PREFIX = "pathways-emulator-jax-"


def image_file(directory: Path, jax_version: str) -> Path:
    """The image's place in ``directory``, where it need not be yet.

    Raises:
        OSError: A file of this installation can't be read.
    """
    return directory / f"{_PREFIX}{jax_version}-{_fingerprint(jax_version)}.sqsh"


def runs_on(jax_version: str) -> bool:
    """Whether the emulator runs on this JAX; its programs may have an older one."""
    return release(jax_version) >= release(OLDEST_JAX)


def is_own(image: Path) -> bool:
    """Whether a file is named like an image that was made here."""
    return image.name.startswith(_PREFIX)


def making_command(directory: Path) -> str:
    """The shell command that makes the image, of the JAX that this Python has."""
    return shlex.join([sys.executable, str(MAKER), str(directory)])


def _fingerprint(jax_version: str) -> str:
    digest = hashlib.sha256()
    # Of the developers' environment, and of those that scripts/setup_env.sh makes.
    locks = [ROOT / "requirements.lock", ROOT / "scripts" / "locks" / f"jax-{jax_version}.lock"]
    files = [MAKER, *(lock for lock in locks if lock.is_file())]
    for source in SOURCES:
        files += sorted((ROOT / source).rglob("*.py"))
    for file in files:
        digest.update(f"{file.relative_to(ROOT)}\n".encode() + file.read_bytes())
    return digest.hexdigest()[:12]
