# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Which container images go with which version of JAX.

The table is ``enroot/images.toml``. A reference in it, or given in its place, is what
``enroot/run_in_container.sh`` takes: HOST/PATH:TAG, HOST/PATH@sha256:DIGEST, or the absolute path
of a squashfs image. ``python3 -P -m pathways_slurm.images VERSION`` prints what it says; this needs
nothing but the standard library.
"""

import argparse
import os
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pathways_slurm import emulator_image

TABLE = Path(__file__).resolve().parents[2] / "enroot" / "images.toml"

SERVER_VARIABLE = "PATHWAYS_SERVER_IMAGE"
PROXY_VARIABLE = "PATHWAYS_PROXY_IMAGE"

_REQUIRED = ("server", "proxy_server")
_KEYS = frozenset({*_REQUIRED, "sidecar"})


class ImageError(ValueError):
    """No images are known for a version, or the table is wrong; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Images:
    """The images of one version of JAX, by reference.

    Attributes:
        server: Of resource manager and workers.
        proxy_server: Of the IFRT proxy.
        sidecar: Of colocated Python, or None if there is none.
    """

    server: str
    proxy_server: str
    sidecar: str | None = None


def read_table(text: str) -> dict[str, Images]:
    """The images of each version, from the text of a table.

    Raises:
        ImageError: It is no TOML, or an entry lacks an image or has an unknown one.
    """
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ImageError(f"the table of images is no TOML: {error}") from error
    return {version: _images(version, entry) for version, entry in tables.items()}


def images_for(
    jax_version: str | None, table: Mapping[str, Images], environment: Mapping[str, str]
) -> Images:
    """The images to run, where those that ``environment`` names win.

    Args:
        jax_version: Of the client's JAX, such as 0.11.1; None if it is not known.
        table: As :func:`read_table` gives it.
        environment: An empty variable is an unset one.

    Raises:
        ImageError: The version has no images in the table, and not both are named.
    """
    server = environment.get(SERVER_VARIABLE) or None
    proxy_server = environment.get(PROXY_VARIABLE) or None
    known = None if jax_version is None else table.get(jax_version)
    if known is not None:
        return replace(
            known,
            server=server or known.server,
            proxy_server=proxy_server or known.proxy_server,
        )
    if server is not None and proxy_server is not None:
        return Images(server, proxy_server)
    which = "a JAX of unknown version" if jax_version is None else f"JAX {jax_version}"
    raise ImageError(
        f"no images are known for {which}; known are those for {', '.join(table) or 'none'}. "
        f"Install one of these versions, or set both {SERVER_VARIABLE} and {PROXY_VARIABLE}"
    )


def load_images(jax_version: str | None, environment: Mapping[str, str]) -> Images:
    """Like :func:`images_for`, with the table of this installation.

    Raises:
        ImageError: As there, or the table can't be read.
    """
    try:
        text = TABLE.read_text(encoding="utf-8")
    except OSError as error:
        raise ImageError(f"could not read {TABLE}: {error.strerror}") from error
    return images_for(jax_version, read_table(text), environment)


def emulator_images(jax_version: str, directory: Path, environment: Mapping[str, str]) -> Images:
    """The emulator's own image in ``directory``, where those that ``environment`` names win.

    It need not be there yet; see :func:`missing_files`.

    Raises:
        OSError: A file of this installation can't be read.
    """
    image = str(emulator_image.image_file(directory, jax_version))
    return images_for(jax_version, {jax_version: Images(image, image)}, environment)


def missing_files(images: Images) -> dict[str, str]:
    """The images that are files and are not there → what is wrong and how it is put right."""
    return {
        image: _missing(Path(image))
        for image in (images.server, images.proxy_server)
        if image.startswith("/") and not Path(image).is_file()
    }


def main(arguments: list[str] | None = None) -> int:
    """Prints the images of a version of JAX, one NAME REFERENCE a line; 2 if there are none."""
    parser = argparse.ArgumentParser(
        prog="python3 -P -m pathways_slurm.images",
        description="Prints the container images that go with a version of JAX.",
        epilog=f"{SERVER_VARIABLE} and {PROXY_VARIABLE} replace them.",
        allow_abbrev=False,
    )
    parser.add_argument("jax_version", metavar="JAX_VERSION", help="such as 0.11.1")
    parser.add_argument(
        "--emulator", type=Path, metavar="DIR", help="the emulator's image in DIR, not Pathways'"
    )
    options = parser.parse_args(arguments)
    try:
        if options.emulator is None:
            images = load_images(options.jax_version, os.environ)
        else:
            directory = options.emulator.absolute()
            images = emulator_images(options.jax_version, directory, os.environ)
            for fault in missing_files(images).values():
                raise ImageError(fault)
    except (ImageError, OSError) as error:
        print(f"pathways_slurm.images: {error}", file=sys.stderr)
        return 2
    for name in _REQUIRED:
        print(name, getattr(images, name))
    return 0


def _missing(image: Path) -> str:
    if not emulator_image.is_own(image):
        return f"there is no image {image}"
    command = emulator_image.making_command(image.parent)
    return f"there is no image of the emulator as it is now, {image}; make it with '{command}'"


def _images(version: str, entry: object) -> Images:
    if not isinstance(entry, dict):
        raise ImageError(f"images of JAX {version}: expected a table, got {entry!r}")
    if unknown := sorted(entry.keys() - _KEYS):
        raise ImageError(
            f"images of JAX {version}: unknown {', '.join(unknown)}; "
            f"valid are {', '.join(sorted(_KEYS))}"
        )
    for name in sorted(_KEYS):
        value = entry.get(name)
        if name in _REQUIRED and value is None:
            raise ImageError(f"images of JAX {version}: {name} is missing")
        if value is not None and (not isinstance(value, str) or not value):
            raise ImageError(
                f"images of JAX {version}: {name} is {value!r}; expected a reference such as "
                "HOST/PATH:TAG"
            )
    return Images(**entry)


if __name__ == "__main__":
    sys.exit(main())
