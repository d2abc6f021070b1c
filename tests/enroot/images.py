# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Container images: one of 1 MB, busybox and nothing else; and the emulator's own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

# The directories of the image alone: a login shell must set this, whatever it inherits.
IMAGE_PATH = "/usr/local/bin:/usr/bin:/bin"


_MAKER = Path(__file__).resolve().parents[2] / "enroot" / "emulator_image.py"


def build(image: Path, scratch: Path) -> None:
    """Writes a squashfs image with busybox's commands in /bin.

    Args:
        image: The file to write.
        scratch: A directory to build it in, which need not exist.
    """
    busybox = shutil.which("busybox")
    if busybox is None:
        raise AssertionError("busybox is not installed, though the suite's needs name it")
    commands = scratch / "bin"
    commands.mkdir(parents=True)
    shutil.copy(busybox, commands / "busybox")
    listed = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True)
    for name in listed.stdout.split():
        if name != "busybox":
            (commands / name).symlink_to("busybox")
    for folder in ("dev", "etc", "proc", "run", "sys", "tmp", "usr/bin", "usr/local/bin"):
        (scratch / folder).mkdir(parents=True)
    (scratch / "etc/profile").write_text(f"export PATH={IMAGE_PATH}\n")
    squash(scratch, image)


def make_emulator(directory: Path) -> Path:
    """The emulator's own image in a directory."""
    done = subprocess.run(
        [sys.executable, str(_MAKER), str(directory)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return Path(done.stdout.removesuffix("\n"))


def unpack(image: Path, folder: Path) -> None:
    """Takes an image apart into a directory that is not there yet."""
    subprocess.run(["unsquashfs", "-q", "-n", "-d", folder, image], env=_environment(), check=True)


def squash(folder: Path, image: Path) -> None:
    """Makes an image of a directory, all of it root's."""
    subprocess.run(
        ["mksquashfs", folder, image, "-all-root", "-noappend", "-quiet", "-no-progress"],
        env=_environment(),
        stdin=subprocess.DEVNULL,
        check=True,
    )


def _environment() -> dict[str, str]:
    # An ordinary user's PATH often lacks the directories of daemons, where some have these.
    return {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
