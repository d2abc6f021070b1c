# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Makes a container image of the emulator, of what this machine has.

``.venv/bin/python enroot/emulator_image.py DIRECTORY`` prints the image's file, in DIRECTORY, and
makes it if it is not there yet: its name has the version of JAX and a hash of the sources that go
into it (:mod:`pathways_slurm.emulator_image`). The image holds this Python, the packages that the
emulator imports, its sources, and the shared libraries of all these, at the places where they are
here; and ``/pathways/server`` and ``/pathways/proxy_server``, as in Pathways' own images. Nothing
is fetched. Needs mksquashfs (Debian's squashfs-tools).
"""

import argparse
import fcntl
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from pathways_slurm.emulator_image import ROOT, SOURCES, image_file

# What the emulator imports, with what that imports; SciPy for its LAPACK.
_PACKAGES = (
    *("grpcio", "protobuf", "typing_extensions"),
    *("jax", "jaxlib", "ml_dtypes", "numpy", "opt_einsum", "scipy"),
)
_PROGRAMS = {
    "server": "pathways_emulator.server",
    "proxy_server": "pathways_emulator.proxy_server",
}

# Of the standard library: most of its size, and nothing that a program of ours needs.
_LEFT_OUT = (
    *("test", "tests", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3"),
    *("site-packages", "dist-packages", "config-*", "*.a"),
)
_SHELL = Path("/bin/sh")
# Lines of ldd, after a tab: "NAME => PATH (0x…)", and for the loader "PATH (0x…)".
_LIBRARY = re.compile(r"^\t(?:\S+ => )?(/\S+) \(0x", re.MULTILINE)
# The fastest to make that is small: 0.2 GB, where it would be 0.5 GB.
_COMPRESSION = ("-comp", "zstd", "-Xcompression-level", "1")


class ImageError(Exception):
    """The image can't be made; the message says why, and what to do."""


def main(arguments: list[str] | None = None) -> int:
    """Makes the image if it is not there, and prints its file."""
    parser = argparse.ArgumentParser(
        prog="enroot/emulator_image.py",
        description="Makes a container image of the emulator and prints its file.",
        allow_abbrev=False,
    )
    parser.add_argument("directory", type=Path, help="where images are kept; made if missing")
    options = parser.parse_args(arguments)
    try:
        print(ensure(options.directory.absolute()))
    except (ImageError, OSError) as error:
        print(f"emulator_image.py: {error}", file=sys.stderr)
        return 1
    return 0


def ensure(directory: Path) -> Path:
    """The image's file, which is there afterwards.

    Of several processes at once, one makes it and the others wait.

    Raises:
        ImageError: Something that goes into it, or mksquashfs, is missing.
        OSError: It can't be written.
    """
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    image = image_file(directory, _distribution("jaxlib").version)
    with (directory / f"{image.name}.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not image.exists():
            with tempfile.TemporaryDirectory(dir=directory, prefix=".building-") as scratch:
                new = Path(scratch) / "image.sqsh"
                root = Path(scratch) / "root"
                assemble(root)
                _squash(root, new)
                new.rename(image)
    return image


def assemble(root: Path) -> None:
    """Puts the image's files below ``root``.

    Raises:
        ImageError: A package is not installed here.
        OSError: A file can't be copied.
    """
    for folder in ("dev", "etc", "proc", "run", "sys", "tmp", "usr/bin"):
        (root / folder).mkdir(parents=True)
    # Where /bin and the like are links into /usr, here and so in the libraries' paths.
    for name in ("bin", "lib", "lib64", "sbin"):
        place = Path("/") / name
        if place.is_symlink():
            (root / name).symlink_to(place.readlink())
            (root / place.resolve().relative_to("/")).mkdir(parents=True, exist_ok=True)
    python = Path(sys.executable).resolve()
    _copy(python, root)
    _copy(_SHELL, root)
    library = Path(sysconfig.get_path("stdlib"))
    shutil.copytree(
        library,
        _inside(library, root),
        symlinks=True,
        ignore=shutil.ignore_patterns(*_LEFT_OUT),
    )
    packages = _inside(library, root) / "site-packages"
    packages.mkdir()
    for name in _PACKAGES:
        for file, place in _package_files(name):
            target = packages / place
            target.parent.mkdir(parents=True, exist_ok=True)
            _link_or_copy(file, target)
    for source in SOURCES:
        shutil.copytree(
            ROOT / source,
            packages / Path(source).name,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
    # The programs here, since one may find its libraries by where it is itself.
    files = [python, _SHELL.resolve(), *root.rglob("*.so"), *root.rglob("*.so.*")]
    for shared in _shared_libraries(files, root):
        _copy(shared, root)
    if Path("/etc/ld.so.cache").exists():
        _copy(Path("/etc/ld.so.cache"), root)
    _write_programs(root, python)
    # The root is read-only in a container: it would be done at each start. What was copied is
    # compiled already.
    ours = [packages / Path(source).name for source in SOURCES]
    subprocess.run([sys.executable, "-m", "compileall", "-q", "-s", root, *ours], check=True)


def _write_programs(root: Path, python: Path) -> None:
    folder = root / "pathways"
    folder.mkdir()
    for name, module in _PROGRAMS.items():
        program = folder / name
        # Isolated: nothing of where it runs may be imported.
        program.write_text(f'#!/bin/sh\nexec {python} -I -m {module} "$@"\n')
        program.chmod(0o755)


def _package_files(name: str) -> Iterator[tuple[Path, Path]]:
    """The files of an installed package, and their places below site-packages."""
    distribution = _distribution(name)
    for place in distribution.files or ():
        file = Path(str(distribution.locate_file(place)))
        # Commands are elsewhere.
        if not {"..", "tests"} & set(place.parts) and file.is_file():
            yield file, Path(*place.parts)


def _distribution(name: str) -> importlib.metadata.Distribution:
    try:
        return importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        raise ImageError(
            f"{name} is not installed in {sys.prefix}; run this with the project's own Python, "
            ".venv/bin/python, which scripts/test.sh --list sets up"
        ) from None


def _shared_libraries(files: Iterable[Path], root: Path) -> set[Path]:
    """What these programs and libraries need that is not in the image yet, as its place here."""
    names = [str(file) for file in files if file.is_file() and not file.is_symlink()]
    done = subprocess.run(["ldd", *names], capture_output=True, text=True, check=False)
    found = {Path(os.path.normpath(match)) for match in _LIBRARY.findall(done.stdout)}
    return {path for path in found if not path.is_relative_to(root)}


def _copy(file: Path, root: Path) -> None:
    """Puts a file at its own place; one that is a link here is a file there."""
    target = _inside(file, root)
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists():
        shutil.copy(file.resolve(), target)


def _inside(path: Path, root: Path) -> Path:
    # By way of the links of the host's directories, which mean the same in the image.
    return root / path.parent.resolve().relative_to("/") / path.name


def _link_or_copy(file: Path, target: Path) -> None:
    try:
        os.link(file, target)
    except OSError:
        # Another file system, or another user's file.
        shutil.copy2(file, target)


def _squash(root: Path, image: Path) -> None:
    command = shutil.which("mksquashfs", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if command is None:
        raise ImageError("there is no mksquashfs; as root: apt-get install squashfs-tools")
    done = subprocess.run(
        [command, root, image, "-all-root", "-noappend", "-quiet", "-no-progress", *_COMPRESSION],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise ImageError(f"mksquashfs failed: {done.stderr.strip()}")


if __name__ == "__main__":
    sys.exit(main())
