# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What a worker says of itself to the resource manager, and why it may be told to end."""

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True)
class Registration:
    """What a worker says of itself.

    Attributes:
        slice_index: 0 .. instance_count-1.
        host_index: 0 .. hosts-1.
        hosts: Of the slice.
        incarnation: >= 1; a newer run of the slice has a greater one.
        process_uuid: Of the process, so that a second one with the same indices is noticed.
        address: For people.
        pid: For people and tools.
        pid_space: Where that pid counts; see `processes.pid_space`. "" if it is not known.
        node: Name of that machine, for people.
    """

    slice_index: int
    host_index: int
    hosts: int
    incarnation: int
    process_uuid: str
    address: str
    pid: int
    pid_space: str = ""
    node: str = ""

    @property
    def place(self) -> str:
        """Which host of which run it is, for people."""
        return f"slice {self.slice_index} host {self.host_index} (incarnation {self.incarnation})"


class StopKind(Enum):
    """Why a worker must end."""

    REFUSED = "refused"
    SUPERSEDED = "superseded"
    SLICE_ENDED = "slice ended"
    SHUTDOWN = "shutdown"
    RELEASED = "released"
