# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Whether a worker may be joined to its slice. Pure."""

from dataclasses import dataclass

from pathways_emulator.registration import Registration, StopKind
from pathways_emulator.slice_run import Run


@dataclass(frozen=True, slots=True)
class Objection:
    """Why a worker can't be joined, and what that makes of it."""

    kind: StopKind
    reason: str


@dataclass(frozen=True, slots=True)
class Admission:
    """Whom a resource manager takes, by its flags.

    Attributes:
        instance_type: Such as ``tpuv6e:2x4``.
        slices: Dead or alive.
        valid_hosts: How many hosts a slice of that type can have.
    """

    instance_type: str
    slices: int
    valid_hosts: frozenset[int]

    def fault(self, registration: Registration) -> Objection | None:
        """What is wrong with the registration, whatever else is joined."""
        sentence = self._sentence(registration)
        return Objection(StopKind.REFUSED, sentence) if sentence else None

    def _sentence(self, registration: Registration) -> str:
        if not 0 <= registration.slice_index < self.slices:
            return (
                f"PATHWAYS_SLICE_INDEX is {registration.slice_index}, but valid is 0 to "
                f"{self.slices - 1} (--instance_count={self.slices})"
            )
        if registration.hosts not in self.valid_hosts:
            valid = " or ".join(str(hosts) for hosts in sorted(self.valid_hosts))
            return (
                f"the slice has {registration.hosts} hosts (PATHWAYS_NODE_ADDRESSES), but valid "
                f"for --instance_type={self.instance_type} is {valid}"
            )
        if not 0 <= registration.host_index < registration.hosts:
            return (
                f"PATHWAYS_HOST_INDEX is {registration.host_index}, but valid is 0 to "
                f"{registration.hosts - 1} (the slice has {registration.hosts} hosts)"
            )
        if registration.incarnation < 1:
            return f"PATHWAYS_INCARNATION is {registration.incarnation}, but valid is >= 1"
        if not registration.process_uuid:
            return "the registration has no process_uuid"
        return ""


def conflict(registration: Registration, run: Run) -> Objection | None:
    """What keeps a valid registration from joining, given the slice's newest run.

    A registration of a newer incarnation than the run's has no conflict with it.
    """
    if registration.incarnation > run.incarnation:
        return None
    name = f"incarnation {registration.incarnation} of slice {registration.slice_index}"
    if registration.incarnation < run.incarnation:
        reason = f"{name} was replaced by incarnation {run.incarnation}"
        return Objection(StopKind.SUPERSEDED, reason)
    if run.released:
        return Objection(StopKind.RELEASED, run.over)
    if run.over:
        reason = f"{name} is over: {run.over}; a new run needs a greater PATHWAYS_INCARNATION"
        return Objection(StopKind.SLICE_ENDED, reason)
    if registration.hosts != run.hosts:
        reason = (
            f"the worker says that {name} has {registration.hosts} hosts, but other workers "
            f"said {run.hosts}; check PATHWAYS_NODE_ADDRESSES of each"
        )
        return Objection(StopKind.REFUSED, reason)
    held = run.joined.get(registration.host_index)
    if held is not None and held.registration.process_uuid != registration.process_uuid:
        reason = (
            f"host {registration.host_index} of {name} is another process already, pid "
            f"{held.registration.pid} at {held.registration.address}; check "
            "PATHWAYS_SLICE_INDEX, PATHWAYS_HOST_INDEX and PATHWAYS_INCARNATION of both"
        )
        return Objection(StopKind.REFUSED, reason)
    return None
