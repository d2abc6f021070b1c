# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""How arrays lie on slices, and how the same layout looks on other slices. Pure."""

import functools
from collections.abc import Mapping, Sequence

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, Sharding

from pathways_elastic.errors import SnapshotError

type Region = tuple[tuple[int, int], ...]
"""Part of an array: for each axis the first index and the one after the last."""

type Shape = tuple[int, ...]


def region_of(index: Sequence[slice], shape: Shape) -> Region:
    """The region that a shard's index, as JAX gives it, selects of an array."""
    return tuple(part.indices(size)[:2] for part, size in zip(index, shape, strict=True))


@functools.lru_cache(maxsize=1024)
def regions(sharding: Sharding, shape: Shape) -> Mapping[jax.Device, Region]:
    """Which part of an array each device has."""
    found = sharding.devices_indices_map(shape)
    return {device: region_of(index or (), shape) for device, index in found.items()}


def slices_by_region(layout: Mapping[jax.Device, Region]) -> dict[Region, set[int]]:
    """Which slices have each part."""
    found: dict[Region, set[int]] = {}
    for device, region in layout.items():
        found.setdefault(region, set()).add(device.slice_index)
    return found


def survives_any_loss(layout: Mapping[jax.Device, Region]) -> bool:
    """Whether every part is on two slices at least."""
    return all(len(slices) > 1 for slices in slices_by_region(layout).values())


def mesh_on(mesh: Mesh, slices: Mapping[int, Sequence[jax.Device]]) -> Mesh:
    """The same mesh over other slices: shorter or longer along the axis that slices lie along.

    Slices that are not in ``mesh`` get the places of one that is. The order of slices along the
    axis is ascending unless ``mesh`` has another.

    Args:
        mesh: A mesh in which one axis consists of equal blocks, each of one slice. If several
            could, as in a mesh of one slice, it is the first of them that is as long as there are
            slices, else the first.
        slices: Devices by slice, in ascending order.

    Raises:
        SnapshotError: ``mesh`` has no such axis, or slices differ in size.
    """
    present = list(dict.fromkeys(device.slice_index for device in mesh.devices.flat))
    axis = _slice_axis(mesh, present)
    if axis is None:
        raise SnapshotError(
            f"no axis of {mesh} consists of one block for each slice, so what it looks like on "
            f"slices {sorted(slices)} is not known: give get_next_snapshot(like=…)"
        )
    template = np.split(mesh.devices, len(present), axis)[0]
    places = [device.id for device in sorted(template.flat, key=lambda d: d.id)]
    sizes = {index: len(devices) for index, devices in slices.items()}
    if set(sizes.values()) != {len(places)}:
        raise SnapshotError(
            f"slices must have {len(places)} devices each, as the mesh of the snapshot has, got "
            f"{sizes}"
        )
    if present == sorted(present):
        order = sorted(slices)
    else:
        order = [index for index in present if index in slices]
        order += sorted(set(slices) - set(order))
    blocks = []
    for index in order:
        block = np.empty(template.shape, object)
        for position, device in np.ndenumerate(template):
            block[position] = slices[index][places.index(device.id)]
        blocks.append(block)
    return Mesh(np.concatenate(blocks, axis), mesh.axis_names, axis_types=mesh.axis_types)


def _slice_axis(mesh: Mesh, present: Sequence[int]) -> int | None:
    count = len(present)
    owners = np.vectorize(lambda device: device.slice_index, otypes=[int])(mesh.devices)
    axes = sorted(range(owners.ndim), key=lambda axis: owners.shape[axis] != count)
    for axis in axes:
        if owners.shape[axis] % count == 0 and all(
            (block == index).all()
            for block, index in zip(np.split(owners, count, axis), present, strict=True)
        ):
            return axis
    return None


def sharding_on(sharding: Sharding, slices: Mapping[int, Sequence[jax.Device]]) -> Sharding:
    """The same layout over other slices; see :func:`mesh_on`.

    Raises:
        SnapshotError: What it looks like there is not known.
    """
    if isinstance(sharding, NamedSharding) and isinstance(sharding.mesh, Mesh):
        return NamedSharding(mesh_on(sharding.mesh, slices), sharding.spec)
    good = {device for devices in slices.values() for device in devices}
    if sharding.device_set <= good:
        return sharding
    if len(sharding.device_set) == 1:
        first = min(good, key=lambda device: device.id)
        return jax.sharding.SingleDeviceSharding(first)
    raise SnapshotError(
        f"what {sharding} looks like on slices {sorted(slices)} is not known: give "
        "get_next_snapshot(like=…)"
    )


def in_host(sharding: Sharding) -> Sharding:
    """The same layout in the host memory beside the devices, or on them if there is none."""
    kind = _host_memory(next(iter(sharding.device_set)))
    return sharding if kind is None else sharding.with_memory_kind(kind)


@functools.lru_cache(maxsize=64)
def _host_memory(device: jax.Device) -> str | None:
    kinds = {memory.kind for memory in device.addressable_memories()}
    return next((kind for kind in ("pinned_host", "unpinned_host") if kind in kinds), None)
