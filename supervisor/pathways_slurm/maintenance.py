# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Requests for maintenance: slices that their nodes are wanted back from, for a while.

One file a slice, ``state/maintenance/slice-N.json``. Whoever may write the service's state
directory makes a request by writing the file, and withdraws it by removing the file. While it is
there the supervisor keeps the slice down: it notifies the slice's hosts, ends by force at the
deadline what is left of them, and starts the slice again only when the file is gone.
Level-triggered, so a request holds across restarts of the supervisor and of the service.
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from pathways_slurm.files import make_private_dir, sync_dir, write_atomic
from pathways_slurm.logs import get_logger

_NAME = re.compile(r"slice-(0|[1-9][0-9]{0,5})\.json")
_FIELDS = ("deadline", "reason", "requested")


class RequestError(ValueError):
    """A file does not hold a request; the message has what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Request:
    """A slice's nodes are wanted.

    Attributes:
        deadline: Unix time in seconds until which its processes may stay.
        reason: Why, for people; "" if nobody said.
        requested: Unix time in seconds of the request.
    """

    deadline: float
    reason: str
    requested: float


def render(request: Request) -> str:
    """The text of a request's file. Pure."""
    return json.dumps(asdict(request), indent=1) + "\n"


def parse(text: str | bytes) -> Request:
    """What :func:`render` made. Pure.

    Raises:
        RequestError: It is something else.
    """
    try:
        fields = json.loads(text)
    except ValueError as error:
        raise RequestError(f"it is not JSON: {error}") from None
    if not isinstance(fields, dict) or set(fields) != set(_FIELDS):
        raise RequestError(f"it is not an object of {', '.join(_FIELDS)}")
    if not isinstance(fields["reason"], str):
        raise RequestError(f"reason is {fields['reason']!r}; it must be text")
    for name in ("deadline", "requested"):
        if not _is_time(fields[name]):
            raise RequestError(f"{name} is {fields[name]!r}; it must be a Unix time in seconds")
    return Request(float(fields["deadline"]), fields["reason"], float(fields["requested"]))


def _is_time(value: object) -> bool:
    # A bool is an int to Python, and JSON's Infinity and NaN are floats.
    return type(value) in (int, float) and 0 < float(str(value)) < math.inf


def index_of(name: str) -> int | None:
    """The slice that a file's name stands for, or None. Pure."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


def make(directory: Path, index: int, request: Request) -> None:
    """Writes the request for a slice in one step; it replaces an earlier one.

    Raises:
        OSError: It can't be written; an earlier one is as it was.
    """
    make_private_dir(directory)
    write_atomic(_path(directory, index), render(request))


def withdraw(directory: Path, index: int) -> bool:
    """Removes the request for a slice; False if there is none.

    Raises:
        OSError: It can't be removed.
    """
    try:
        _path(directory, index).unlink()
    except FileNotFoundError:
        return False
    sync_dir(directory)
    return True


def _warn(message: str) -> None:
    get_logger(__name__).warning(message)


def requests(directory: Path, warn: Callable[[str], None] = _warn) -> Mapping[int, Request]:
    """All requests there are, by slice index; none if the directory is not there.

    Args:
        directory: Of the requests.
        warn: Is told, at each call, of every file that is no request. Such a file asks for nothing.

    Raises:
        OSError: The directory or a file can't be read. This says nothing about any request.
    """
    try:
        # write_atomic's drafts begin with a dot.
        paths = sorted(path for path in directory.iterdir() if not path.name.startswith("."))
    except FileNotFoundError:
        return {}
    found = {}
    for path in paths:
        if (index := index_of(path.name)) is None:
            warn(f"{path} is ignored: a request for maintenance is named slice-N.json; remove it")
            continue
        try:
            found[index] = parse(path.read_bytes())
        except FileNotFoundError:
            continue  # withdrawn a moment ago
        except RequestError as error:
            warn(
                f"{path} is ignored, it is no request for maintenance: {error}. Ask again with "
                f"'pathways-slurm maintenance {index}', or remove it"
            )
    return found


def requested(directory: Path) -> frozenset[int]:
    """The slices that a file stands for, whatever it holds. Raises OSError."""
    try:
        indices = [index_of(path.name) for path in directory.iterdir()]
    except FileNotFoundError:
        return frozenset()
    return frozenset(index for index in indices if index is not None)


def _path(directory: Path, index: int) -> Path:
    return directory / f"slice-{index}.json"
