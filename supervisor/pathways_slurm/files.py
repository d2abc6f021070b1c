# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Files that other processes read while we write them: private, and never half written."""

import contextlib
import os
import tempfile
from pathlib import Path

PRIVATE_FILE_MODE = 0o600
PRIVATE_DIR_MODE = 0o700


def write_atomic(path: Path, data: str | bytes) -> None:
    """Replaces ``path`` by ``data`` in one step, mode 0600, on disk when this returns.

    A reader sees the old content or the new one, whole, also across a crash or a power cut. A
    symbolic link at ``path`` is replaced, not followed. Text is written as UTF-8.

    Raises:
        OSError: The directory is missing, not writable, or full. ``path`` is as it was, and no
            temporary file is left.
    """
    content = data.encode() if isinstance(data, str) else data
    # mkstemp creates with mode 0600 whatever the umask says, and never follows a link. The name is
    # beside the target, because a rename is atomic only within one file system.
    descriptor, temporary = tempfile.mkstemp(
        prefix=f".{path.name}.", suffix=".tmp", dir=path.parent
    )
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            Path(temporary).unlink()
        raise
    sync_dir(path.parent)


def sync_dir(directory: Path) -> None:
    """Makes renames and removals in ``directory`` durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_private_dir(path: Path) -> None:
    """Creates ``path`` and any missing parents with mode 0700; tightens ``path`` if it exists.

    Parents that exist keep their mode: they may not be ours.

    Raises:
        OSError: It can't be created, is not a directory, or belongs to another user.
    """
    if not path.parent.exists():
        make_private_dir(path.parent)
    # exist_ok still raises FileExistsError for anything but a directory.
    path.mkdir(mode=PRIVATE_DIR_MODE, exist_ok=True)
    # chmod, because an existing directory may be open to others.
    if path.stat().st_mode & 0o777 != PRIVATE_DIR_MODE:
        path.chmod(PRIVATE_DIR_MODE)
