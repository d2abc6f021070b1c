# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Which slices take part: the resource manager's word, as the proxy uses it."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Notice:
    """A slice that is alive is about to go.

    Attributes:
        reason: Who said so, for a human ("host 1 got SIGTERM").
        left_s: Seconds from this snapshot until its processes will be killed. Compared only when it
            is new: that time passes is no change of membership.
    """

    reason: str
    left_s: float = field(compare=False)


@dataclass(frozen=True, slots=True)
class SliceMember:
    """One slice of the instance.

    Attributes:
        index: 0 .. instance_count-1.
        incarnation: Of the newest run of the slice that the resource manager has seen complete, or
            ended, or taking the place of an earlier one; 0 if there is none. So a slice whose hosts
            are still coming back to a restarted resource manager has 0, and one that is not alive
            with a greater number has lost that incarnation for good, settled or not.
        alive: Every host of that incarnation has registered and none has gone since.
        reason: Why the slice is not alive, for a human ("host 1 ended: connection closed"); "" if
            it is.
        notice: Given to this incarnation; None if it was not, or once it is no longer alive.
        abandoned: Why no newer incarnation will come by itself ("cancelled by a user"); "" as long
            as one may. Whoever waits for the slice must give up then.
    """

    index: int
    incarnation: int
    alive: bool
    reason: str = ""
    notice: Notice | None = None
    abandoned: str = ""


@dataclass(frozen=True, slots=True)
class Membership:
    """A snapshot of all slices.

    Attributes:
        instance_type: As given to the resource manager, such as ``tpuv6e:2x4``.
        settled: False for a while after the resource manager started: slices that have not
            registered *yet* may be alive, so absence from an unsettled snapshot is no evidence of
            loss.
        slices: One entry per slice, by index.
    """

    instance_type: str
    settled: bool
    slices: tuple[SliceMember, ...]
