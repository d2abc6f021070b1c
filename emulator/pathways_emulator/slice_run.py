# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The newest run of a slice: its hosts, its notice, its end, and how others see it."""

from dataclasses import dataclass, field

from pathways_emulator import membership
from pathways_emulator.membership import SliceMember
from pathways_emulator.registration import Registration
from pathways_slurm import runtime_files
from pathways_slurm.runtime_files import FirstEnd, SliceReport


@dataclass(slots=True)
class Host:
    """A joined host. `heard_s` is when it last was, on the registry's own clock."""

    connection: int
    registration: Registration
    heard_s: float


@dataclass(slots=True)
class Run:
    """The newest incarnation of a slice.

    Attributes:
        slice_index: Of the slice.
        incarnation: >= 1.
        hosts: How many it has.
        known: Whether a reader of snapshots may know of this run or of one before it; as long as
            none may, it is reported as 0. After a restart of the resource manager, a slice whose
            hosts are still coming back must not look like one that has lost a host.
        joined: By host index.
        over: Why it is; "" while it is not.
        notice: The first one that a host gave; it stays when the run is over.
        released: It is over because nothing on it was needed any more.
        first_end: The host that ended it, if one did.
    """

    slice_index: int
    incarnation: int
    hosts: int
    known: bool
    joined: dict[int, Host] = field(default_factory=dict)
    over: str = ""
    notice: runtime_files.Notice | None = None
    released: bool = False
    first_end: FirstEnd | None = None

    @property
    def name(self) -> str:
        """For people."""
        return f"slice {self.slice_index} (incarnation {self.incarnation})"

    @property
    def alive(self) -> bool:
        """Every host is joined, and none has gone."""
        return not self.over and len(self.joined) == self.hosts

    @property
    def reason(self) -> str:
        """Why it is not alive; "" if it is."""
        if self.alive:
            return ""
        return self.over or (
            f"{len(self.joined)} of {self.hosts} hosts of incarnation {self.incarnation} registered"
        )

    def end(self, reason: str) -> list[int]:
        """The run is over, for its first reason; its hosts are no longer ours.

        Returns:
            The connections of the hosts that were joined, who must be told.
        """
        self.known = True
        self.over = self.over or reason
        connections = [host.connection for host in self.joined.values()]
        self.joined.clear()
        return connections

    def member(self, now: float, abandoned: str) -> SliceMember:
        """As snapshots tell it; `now` is Unix time."""
        notice = None
        if self.alive and self.notice is not None:
            left_s = max(0.0, self.notice.deadline - now)
            notice = membership.Notice(self.notice.reason, left_s)
        return SliceMember(
            index=self.slice_index,
            incarnation=self._reported,
            alive=self.alive,
            reason=self.reason,
            notice=notice,
            abandoned=abandoned,
        )

    def report(self) -> SliceReport:
        """As the report tells it."""
        return SliceReport(
            index=self.slice_index,
            incarnation=self._reported,
            alive=self.alive,
            reason=self.reason,
            notice=self.notice if self.known else None,
            released=self.released,
            end=self.first_end,
        )

    @property
    def _reported(self) -> int:
        return self.incarnation if self.known else 0
