# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The virtual devices of an instance: which slice and which place in it each one has."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product

from pathways_emulator.membership import Membership
from pathways_emulator.proxy.status import invalid_argument
from pathways_slurm.topology import Topology, parse_instance_type


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """One device, which is one chip.

    Attributes:
        id: 0 .. number of devices - 1, slice after slice.
        slice_index: The slice it belongs to.
        coords: Its place in the slice, always three numbers.
    """

    id: int
    slice_index: int
    coords: tuple[int, int, int]


class DeviceTable:
    """All devices of an instance, whether their slices are alive or not."""

    def __init__(self, slice_count: int, topology: Topology) -> None:
        self.slice_count = slice_count
        self.chips_per_slice = topology.chips
        places = list(_coords(topology.dims))
        self.devices = tuple(
            DeviceInfo(index * topology.chips + place, index, coords)
            for index in range(slice_count)
            for place, coords in enumerate(places)
        )

    @classmethod
    def of(cls, membership: Membership) -> "DeviceTable":
        """The devices of a service.

        Raises:
            TopologyError: The instance type is not one.
        """
        return cls(len(membership.slices), parse_instance_type(membership.instance_type))

    def __len__(self) -> int:
        return len(self.devices)

    def of_slice(self, index: int) -> frozenset[int]:
        """The ids of the devices of a slice."""
        return frozenset(d.id for d in self.devices if d.slice_index == index)

    def slices_of(self, device_ids: Iterable[int]) -> tuple[int, ...]:
        """The slices that these devices belong to, sorted.

        Raises:
            ProxyError: INVALID_ARGUMENT, for an id that is not a device's.
        """
        slices = set()
        for device in device_ids:
            if not 0 <= device < len(self.devices):
                raise invalid_argument(
                    f"device {device} does not exist; devices are 0 to {len(self.devices) - 1}"
                )
            slices.add(device // self.chips_per_slice)
        return tuple(sorted(slices))


def _coords(dims: tuple[int, ...]) -> Iterable[tuple[int, int, int]]:
    """Chips in the order libtpu numbers them: the first dimension varies fastest."""
    x, y, z = (*dims, 1, 1)[:3]
    return ((i, j, k) for k, j, i in product(range(z), range(y), range(x)))
