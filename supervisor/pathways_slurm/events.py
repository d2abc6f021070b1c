# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""events.jsonl: every transition of a service, one JSON object a line, for people and programs."""

import fcntl
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from pathways_slurm.files import PRIVATE_FILE_MODE


class Reason(StrEnum):
    """Why a line was written. ``meaning`` says it in a sentence."""

    meaning: str

    def __new__(cls, value: str, meaning: str) -> "Reason":
        member = str.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member

    ServiceStarting = "ServiceStarting", "A new run of the service begins."
    SupervisorAdopted = (
        "SupervisorAdopted",
        "A new supervisor goes on with a run whose supervisor ended.",
    )
    ServiceStopping = "ServiceStopping", "The service ends: no slice is started any more."
    ServiceStopped = "ServiceStopped", "The service has ended and nothing of it is left."

    ResourceManagerEnded = (
        "ResourceManagerEnded",
        "The resource manager ended unasked; it is started again within its budget.",
    )
    ProxyEnded = (
        "ProxyEnded",
        "The IFRT proxy ended unasked; programs connected to it have lost their session.",
    )

    ComponentHung = (
        "ComponentHung",
        "Resource manager or proxy lives and is silent; it is killed and started again.",
    )

    ArraySubmitted = "ArraySubmitted", "Slices were asked for from the scheduler."
    SubmissionRefused = (
        "SubmissionRefused",
        "The scheduler does not take slices again that had left its books; they are asked for "
        "again, and the others go on.",
    )
    SlicePending = "SlicePending", "The slice waits for nodes."
    SliceStarting = "SliceStarting", "The slice has its nodes; not every host answers yet."
    SliceReady = "SliceReady", "Every host of the slice answers."
    SliceUnreachable = "SliceUnreachable", "The slice was ready and runs, but a host is silent."
    SliceNotice = (
        "SliceNotice",
        "The slice is about to go: its processes will be killed after the time in the message.",
    )
    SliceAcknowledged = (
        "SliceAcknowledged",
        "Programs no longer use the slice that is about to go; it need not wait for its deadline.",
    )
    SliceGone = (
        "SliceGone",
        "The slice has gone after notice, released by who used it; the message says what became of "
        "its data.",
    )
    SliceLost = "SliceLost", "The slice was ready, and its run is over."
    SliceRequeued = "SliceRequeued", "The slice is started again, on nodes that may be others."
    SliceReleased = "SliceReleased", "A hold or a wait of the scheduler on the slice was lifted."
    SliceMaintenance = (
        "SliceMaintenance",
        "The slice stays down until the request for its nodes is withdrawn.",
    )
    SliceFailed = "SliceFailed", "The slice ended and will not be started again by itself."
    SliceCancelled = "SliceCancelled", "A user ended the slice, so it is not started again."

    NodePoweredDown = (
        "NodePoweredDown",
        "A node that failed was powered down; it is booted, or made anew, for the next task on it.",
    )
    NodeBack = "NodeBack", "A node that was powered down is there again."
    NodeNotBack = "NodeNotBack", "A node that was powered down is out of service in the scheduler."
    NodesNotPoweredDown = (
        "NodesNotPoweredDown",
        "Nodes that failed can't be powered down from here, or have not gone down; the service "
        "goes on without.",
    )
    NodeExcluded = (
        "NodeExcluded",
        "A node has failed too often: slices keep off it for the time in the message.",
    )
    NodeNotExcluded = (
        "NodeNotExcluded",
        "A node has failed too often and is used all the same, such as for want of others.",
    )
    NodeTriedAgain = "NodeTriedAgain", "The time of an excluded node is over: slices may use it."

    ClusterEnvPublished = (
        "ClusterEnvPublished",
        "The service can be used: cluster.env names a proxy that answers.",
    )
    ClusterEnvWithdrawn = "ClusterEnvWithdrawn", "cluster.env was removed: the proxy is gone."

    BudgetExhausted = (
        "BudgetExhausted",
        "Restarts, or a time limit, named in the message ran out, so nothing is retried for it.",
    )
    SchedulerUnavailable = (
        "SchedulerUnavailable",
        "The scheduler does not answer; nothing is concluded from that about any slice.",
    )
    SchedulerAnswersAgain = "SchedulerAnswersAgain", "The scheduler answers again."


class Entry(Protocol):
    """What :meth:`EventLog.append` writes down."""

    @property
    def reason(self) -> Reason: ...

    @property
    def message(self) -> str:
        """A sentence for a person."""

    @property
    def subject(self) -> str:
        """What it is about: ``service``, ``scheduler``, ``slice 1``, ``rm``, ..."""


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the file.

    Attributes:
        time: Unix time in seconds.
        reason: A :class:`Reason`'s value, or a word of a newer version.
        subject: What it is about.
        message: A sentence for a person.
        fields: Anything else that the line holds.
    """

    time: float
    reason: str
    subject: str
    message: str
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EventLog:
    """Appends events to ``path``, which is created with mode 0600 when the first one comes."""

    path: Path
    clock: Callable[[], float] = time.time

    def append(self, entry: Entry, **fields: Any) -> None:
        """Writes one line, with ``fields`` (JSON values) added to it.

        Several processes may append at the same time. A line that a crash or a full disk left
        unfinished stays a line of its own and does not take this one with it.

        Raises:
            OSError: It can't be written, or not whole.
        """
        now = self.clock()
        utc = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds")
        line = json.dumps(
            {
                "time": round(now, 3),
                "utc": utc.replace("+00:00", "Z"),
                "reason": entry.reason.value,
                "subject": entry.subject,
                "message": entry.message,
                **fields,
            },
            ensure_ascii=False,
        )
        # File names in a message may hold bytes that are no UTF-8; JSON's own escape keeps them.
        data = line.encode("utf-8", "backslashreplace") + b"\n"
        descriptor = os.open(
            self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, PRIVATE_FILE_MODE
        )
        try:
            # Another writer's line may be in the file by half until that writer is done.
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            size = os.fstat(descriptor).st_size
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                data = b"\n" + data
            written = os.write(descriptor, data)
        finally:
            os.close(descriptor)
        if written != len(data):
            raise OSError(f"{self.path}: wrote {written} of {len(data)} bytes of an event")


def read_events(path: Path) -> list[Event]:
    """All events in ``path``, oldest first; none if there is no file.

    Lines that are torn, or that are no events, are left out.

    Raises:
        OSError: The file can't be read.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    events = (parse_event(line) for line in data.split(b"\n"))
    return [event for event in events if event is not None]


def parse_event(line: bytes) -> Event | None:
    """One line as an event; None if it is torn, or is none."""
    try:
        record = json.loads(line)
    except ValueError:
        return None
    match record:
        case {
            "time": float() | int() as at,
            "reason": str() as reason,
            "subject": str() as subject,
            "message": str() as message,
            **fields,
        }:
            more = {str(name): value for name, value in fields.items() if name != "utc"}
            return Event(float(at), reason, subject, message, more)
        case _:
            return None
