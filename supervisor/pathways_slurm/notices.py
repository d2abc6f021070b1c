# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""notices.json: which slices are about to go, which are back, and whether the service ends.

It is beside cluster.env, on a file system that programs of the service see too. The supervisor
writes it; programs read it, and answer by files in ``notices.d``: that a slice which is about to go
is no longer used, so that its nodes need not wait for the deadline. Reading is strict.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pathways_slurm.files import PRIVATE_FILE_MODE, make_private_dir, write_atomic

FILE = "notices.json"
DIRECTORY = "notices.d"
VERSION = 1

_ANSWER = re.compile(r"slice-(0|[1-9][0-9]{0,5})-incarnation-([1-9][0-9]{0,8})")


class NoticesError(ValueError):
    """The file is no notices.json; the message has the path and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Going:
    """A slice that is about to go.

    Attributes:
        slice: Its index.
        incarnation: Of the run that goes.
        deadline: Unix time in seconds at which its processes will be killed.
        reason: For people ("host 1 got SIGTERM").
    """

    slice: int
    incarnation: int
    deadline: float
    reason: str


@dataclass(frozen=True, slots=True)
class Back:
    """A slice that can be used again after it was lost, or had gone, in this run of the service.

    Attributes:
        slice: Its index.
        incarnation: Of its present run.
        since: Unix time in seconds since when that run was ready.
    """

    slice: int
    incarnation: int
    since: float


@dataclass(frozen=True, slots=True)
class Shutdown:
    """The whole service ends: nothing of it comes back.

    Attributes:
        reason: For people.
        since: Unix time in seconds.
    """

    reason: str
    since: float


@dataclass(frozen=True, slots=True)
class Notices:
    """All that the file says.

    Attributes:
        run_id: Of the service's run.
        sequence: Grows with each change.
        going: By slice index.
        back: By slice index.
        shutdown: None while the service goes on.
    """

    run_id: str
    sequence: int = 0
    going: tuple[Going, ...] = ()
    back: tuple[Back, ...] = ()
    shutdown: Shutdown | None = None

    def changed_to(
        self, going: Iterable[Going], back: Iterable[Back], shutdown: Shutdown | None
    ) -> "Notices":
        """With this content, under the next number if it is another than before. Pure."""
        after = replace(self, going=tuple(going), back=tuple(back), shutdown=shutdown)
        return self if after == self else replace(after, sequence=self.sequence + 1)


def write(path: Path, notices: Notices) -> None:
    """Replaces the file in one step, mode 0600. Raises OSError if it can't be written."""
    write_atomic(path, json.dumps({"version": VERSION, **asdict(notices)}, indent=1) + "\n")


def read(path: Path) -> Notices:
    """Reads a published file.

    Raises:
        FileNotFoundError: There is none: no service has run here.
        NoticesError: It is not one that :func:`write` wrote.
        OSError: It can't be read.
    """
    if path.stat().st_mode & 0o022:
        raise NoticesError(
            f"{path}: other users can write to it, so it may say anything. "
            f"If it is right: chmod 600 {path}"
        )
    try:
        raw = json.loads(path.read_bytes())
        if not isinstance(raw, dict) or "version" not in raw:
            raise ValueError("it has no version")
        if (version := raw.pop("version")) == VERSION:
            return _notices(raw)
    except ValueError as error:
        raise NoticesError(f"{path} is no notices.json: {error}") from None
    raise NoticesError(
        f"{path} is of version {version!r}, and this program reads version {VERSION} only: use the "
        "same version of pathways-slurm as the service"
    )


def acknowledge(directory: Path, slice_index: int, incarnation: int) -> None:
    """Tells the service that the slice, which is about to go, is not used any more.

    May be called on any node that sees the directory, and more than once.

    Args:
        directory: ``notices.d`` beside cluster.env.
        slice_index: As in :class:`Going`.
        incarnation: As in :class:`Going`. Of another run of the slice it says nothing.

    Raises:
        OSError: The file can't be written.
        ValueError: No run of a slice has such numbers.
    """
    name = f"slice-{slice_index}-incarnation-{incarnation}"
    if not _ANSWER.fullmatch(name):
        raise ValueError(f"{name!r} names no run of a slice: indices are >= 0, incarnations >= 1")
    make_private_dir(directory)
    (directory / name).touch(PRIVATE_FILE_MODE)


def acknowledged(directory: Path) -> frozenset[tuple[int, int]]:
    """(slice index, incarnation) of every answer. Files of other names are none.

    Raises:
        OSError: The directory can't be read, which says nothing about any answer.
    """
    try:
        names = [path.name for path in directory.iterdir()]
    except FileNotFoundError:
        return frozenset()
    matches = (_ANSWER.fullmatch(name) for name in names)
    return frozenset((int(match[1]), int(match[2])) for match in matches if match)


def forget(directory: Path, answers: Iterable[tuple[int, int]]) -> None:
    """Removes answers that are settled. Raises OSError if one can't be removed."""
    for slice_index, incarnation in answers:
        (directory / f"slice-{slice_index}-incarnation-{incarnation}").unlink(missing_ok=True)


def remove(path: Path, directory: Path) -> None:
    """Removes the file and the answers of an earlier run. Raises OSError if they stay."""
    path.unlink(missing_ok=True)
    forget(directory, acknowledged(directory))


def _notices(raw: object) -> Notices:
    fields = _object(raw, _FIELDS)
    shutdown = fields["shutdown"]
    return Notices(
        run_id=fields["run_id"],
        sequence=fields["sequence"],
        going=tuple(Going(**_object(entry, _GOING)) for entry in fields["going"]),
        back=tuple(Back(**_object(entry, _BACK)) for entry in fields["back"]),
        shutdown=None if shutdown is None else Shutdown(**_object(shutdown, _SHUTDOWN)),
    )


_NUMBER = (int, float)
_FIELDS = {
    "run_id": (str,),
    "sequence": (int,),
    "going": (list,),
    "back": (list,),
    "shutdown": (dict, type(None)),
}
_GOING = {"slice": (int,), "incarnation": (int,), "deadline": _NUMBER, "reason": (str,)}
_BACK = {"slice": (int,), "incarnation": (int,), "since": _NUMBER}
_SHUTDOWN = {"reason": (str,), "since": _NUMBER}


def _object(raw: object, fields: Mapping[str, tuple[type, ...]]) -> dict[str, Any]:
    """``raw`` if it is an object of exactly these fields. Raises ValueError."""
    if not isinstance(raw, dict) or raw.keys() != fields.keys():
        raise ValueError(f"{raw!r} is not an object of {', '.join(fields)}")
    for name, kinds in fields.items():
        # Not isinstance: a bool is an int to Python.
        if type(raw[name]) not in kinds:
            valid = " or ".join(kind.__name__ for kind in kinds)
            raise ValueError(f"{name} is {raw[name]!r}, which is no {valid}")
    return raw
