# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The file with a service's variables, for bash and dotenv readers, while the service can be used.

The form is that of a service's cluster.env, and that can be read here, too.
"""

import contextlib
import os
import re
from collections.abc import Mapping
from pathlib import Path

_LINE = re.compile(r"(?:export )?([A-Z][A-Z0-9_]*)=(?:([A-Za-z0-9_./:@%+,=-]*)|'([^'\\$`]*)')")

_MARK = "# Written by pathways-emulator serve"


def is_ours(path: Path) -> bool:
    """Whether the file was written by this module."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.readline().startswith(_MARK)
    except OSError:
        return False


def write(path: Path, variables: Mapping[str, str], token: str) -> None:
    """Writes the file in one step, mode 0600.

    Args:
        path: Absolute.
        variables: Values without characters that a shell would interpret.
        token: Tells this file from one of another process, for `remove`.

    Raises:
        OSError: It cannot be written.
    """
    lines = [f"{_MARK}, {token}; it is removed when that ends.", *exports(variables), ""]
    temporary = _temporary(path, token)
    with contextlib.suppress(FileNotFoundError):
        temporary.unlink()
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write("\n".join(lines))
    temporary.replace(path)


def read(path: Path) -> dict[str, str]:
    """The variables of an env file or of a cluster.env; nothing in it is executed.

    Raises:
        ValueError: It has a line that neither has, or others may write to it; the message names it.
        FileNotFoundError: There is none.
        OSError: It can't be read.
    """
    if path.stat().st_mode & 0o022:
        raise ValueError(f"{path}: other users can write to it. If it is right: chmod 600 {path}")
    variables: dict[str, str] = {}
    for number, line in enumerate(path.read_bytes().decode(errors="replace").split("\n"), start=1):
        if not line or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise ValueError(
                f"{path}, line {number}: {line!r} is not of the form export NAME=VALUE, with a "
                "plain word or text in single quotes"
            )
        name, plain, quoted = match.groups()
        variables[name] = plain if quoted is None else quoted
    return variables


def exports(variables: Mapping[str, str]) -> list[str]:
    """The lines for a shell."""
    return [f"export {name}={value}" for name, value in variables.items()]


def remove(path: Path, token: str) -> None:
    """Removes the file if it is still the one written with `token`; also a half-written one."""
    with contextlib.suppress(FileNotFoundError):
        _temporary(path, token).unlink()
    try:
        if token in path.read_text(encoding="utf-8", errors="replace").splitlines()[0]:
            path.unlink()
    except (OSError, IndexError):
        return  # Gone already, or not ours.


def _temporary(path: Path, token: str) -> Path:
    return path.with_name(f".{path.name}.{token.replace(' ', '-')}.tmp")
