# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Two files between supervisor and resource manager, which run on the same machine.

The resource manager writes its *report* at every change: which slices take part, and which were
given notice. The supervisor writes its *orders*: that the service ends, and what became of slices.
Files and not calls, because both sides are level-triggered, either may be restarted at any time,
and one that hangs must not hold up the other. A runtime that knows neither file has no report.
"""

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from pathways_slurm.files import write_atomic

REPORT_VARIABLE = "PATHWAYS_REPORT_FILE"
"""Environment variable of the resource manager: where it writes its report."""
ORDERS_VARIABLE = "PATHWAYS_ORDERS_FILE"
"""Environment variable of the resource manager: where it reads its orders."""


class RuntimeFileError(ValueError):
    """A file is there, but is not one of these."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A slice is about to go.

    Attributes:
        reason: Who said so, for people ("host 1 got SIGTERM").
        deadline: Unix time at which its processes will be killed, as far as they know.
    """

    reason: str
    deadline: float


class EndKind(StrEnum):
    """How a host ended, as the resource manager saw it."""

    BROKEN = "broken"  # its connection broke: the process has ended, or its machine has
    LEFT = "left"  # it said that it ends, and did so in order, with exit code 0
    SILENT = "silent"  # nothing was heard of it for the heartbeat timeout


@dataclass(frozen=True, slots=True)
class FirstEnd:
    """The host that ended a run; what the others did after that is no fault of theirs.

    Attributes:
        host: Index of the host.
        kind: How it ended.
    """

    host: int
    kind: EndKind


@dataclass(frozen=True, slots=True)
class SliceReport:
    """One slice, as the resource manager sees it.

    Attributes:
        index: Slice index.
        incarnation: Newest run that was complete or has ended; 0 if there is none.
        alive: Every host of it is joined.
        reason: Why not; "" while alive.
        notice: Given to this incarnation; stays after its end.
        released: It was told to end because nothing on it is needed any more: its data is saved, or
            its workload has left it. Such an end is no failure.
        end: The host that ended the run; None while none has, also if the run is over otherwise, or
            if a host left it before it was complete.
    """

    index: int
    incarnation: int
    alive: bool
    reason: str = ""
    notice: Notice | None = None
    released: bool = False
    end: FirstEnd | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """All that the resource manager says.

    Attributes:
        settled: False for a while after its start: absence is no evidence of loss yet.
        shutting_down: It has taken the order to shut down; nobody saves anything from now on.
        slices: By index.
    """

    settled: bool
    shutting_down: bool
    slices: tuple[SliceReport, ...]

    def write(self, path: Path) -> None:
        """Replaces the file in one step. Raises OSError."""
        _write(path, asdict(self))

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """The report, or None if there is none. Raises OSError and RuntimeFileError."""
        raw = _read(path)
        if raw is None:
            return None
        try:
            return cls(
                bool(raw["settled"]),
                bool(raw["shutting_down"]),
                tuple(_slice_report(entry) for entry in raw["slices"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise RuntimeFileError(f"{path}: not a report: {error!r}") from None


@dataclass(frozen=True, slots=True)
class SliceOrder:
    """What the resource manager has to know of one incarnation of a slice.

    Attributes:
        index: Slice index.
        incarnation: That it is about; another one is not affected.
        reason: For people.
    """

    index: int
    incarnation: int
    reason: str


@dataclass(frozen=True, slots=True)
class Orders:
    """All that the supervisor says.

    Attributes:
        shutdown: Why the whole service ends; "" while it does not.
        released: The workload has left these: their workers may end before the deadline.
        abandoned: These will not come back by themselves: whoever waits for them must not go on
            waiting. A greater incarnation that joins ends that.
    """

    shutdown: str = ""
    released: tuple[SliceOrder, ...] = ()
    abandoned: tuple[SliceOrder, ...] = ()

    def write(self, path: Path) -> None:
        """Replaces the file in one step. Raises OSError."""
        _write(path, asdict(self))

    @classmethod
    def read(cls, path: Path) -> Self:
        """The orders; none if there is no file. Raises OSError and RuntimeFileError."""
        raw = _read(path)
        if raw is None:
            return cls()
        try:
            return cls(
                str(raw["shutdown"]),
                tuple(_slice_order(entry) for entry in raw["released"]),
                tuple(_slice_order(entry) for entry in raw["abandoned"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise RuntimeFileError(f"{path}: not orders: {error!r}") from None


def stamp(path: Path) -> tuple[int, int, int] | None:
    """Differs whenever ``path`` was written anew; None if it is not there or can't be seen."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def _slice_report(raw: dict[str, Any]) -> SliceReport:
    notice = raw["notice"]
    # A resource manager may be older than its present supervisor, and not say this.
    end = raw.get("end")
    return SliceReport(
        index=int(raw["index"]),
        incarnation=int(raw["incarnation"]),
        alive=bool(raw["alive"]),
        reason=str(raw["reason"]),
        notice=None if notice is None else Notice(str(notice["reason"]), float(notice["deadline"])),
        released=bool(raw["released"]),
        end=None if end is None else FirstEnd(int(end["host"]), EndKind(end["kind"])),
    )


def _slice_order(raw: dict[str, Any]) -> SliceOrder:
    return SliceOrder(int(raw["index"]), int(raw["incarnation"]), str(raw["reason"]))


def _write(path: Path, content: dict[str, Any]) -> None:
    write_atomic(path, json.dumps(content, indent=1) + "\n")


def _read(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise RuntimeFileError(f"{path}: {error}") from None
    if not isinstance(content, dict):
        raise RuntimeFileError(f"{path}: not an object")
    return content
