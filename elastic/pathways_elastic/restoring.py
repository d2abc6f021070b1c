# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Puts snapshots back onto devices: those they came from, fewer, more, or others."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Sharding, SingleDeviceSharding

from pathways_elastic import layout
from pathways_elastic.errors import SnapshotError
from pathways_elastic.layout import Region
from pathways_elastic.snapshots import Constant, OnSlices, Piece, Snapshot


def restore(
    snapshot: Snapshot, slices: Mapping[int, Sequence[jax.Device]], like: Any | None = None
) -> Any:
    """Puts a snapshot onto devices, and waits until it is there. The snapshot stays as it is.

    Args:
        snapshot: What to restore.
        slices: Devices by slice, on which arrays get the layout that they had.
        like: A pytree like the state of arrays, or of shapes with shardings, whose layout to use
            instead.

    Raises:
        SnapshotError: The layout does not fit.
        jax.errors.JaxRuntimeError: A slice was lost meanwhile.
    """
    targets = _targets(snapshot, slices, like)
    sources = _sources(snapshot, targets)
    wanted = [
        target
        for leaf, target in zip(snapshot.leaves, targets, strict=True)
        if not isinstance(leaf, Constant)
    ]
    try:
        arrays = jax.device_put(sources, wanted, may_alias=False)
    except ValueError as error:
        raise SnapshotError(
            f"the snapshot does not fit onto slices {sorted(slices)}: {error}"
        ) from error
    jax.block_until_ready(arrays)
    return jax.tree.unflatten(snapshot.structure, _leaves(snapshot, iter(arrays)))


def _sources(snapshot: Snapshot, targets: Sequence[Sharding | None]) -> list[Any]:
    """Each array in host memory: beside the devices it shall go to, else of this process."""
    plans = [
        _plan(leaf, target, number) if isinstance(leaf, OnSlices) and target is not None else None
        for number, (leaf, target) in enumerate(zip(snapshot.leaves, targets, strict=True))
    ]
    # What must go from one device to another, in one go.
    moves = [(p, d) for plan in plans if plan is not None for p, d in plan if p.device != d]
    moved = iter(
        jax.device_put(
            [piece.data for piece, _ in moves],
            [layout.in_host(SingleDeviceSharding(device)) for _, device in moves],
        )
    )
    sources: list[Any] = []
    for leaf, target, plan in zip(snapshot.leaves, targets, plans, strict=True):
        if isinstance(leaf, Constant):
            continue
        if plan is not None and target is not None:
            data = [piece.data if piece.device == d else next(moved) for piece, d in plan]
            where = layout.in_host(target)
            shape = leaf.origin.shape
            sources.append(jax.make_array_from_single_device_arrays(shape, where, data))
        else:
            sources.append(leaf.to_client().value if isinstance(leaf, OnSlices) else leaf.value)
    return sources


def _leaves(snapshot: Snapshot, arrays: Iterator[jax.Array]) -> list[Any]:
    leaves: list[Any] = []
    for leaf in snapshot.leaves:
        if isinstance(leaf, Constant):
            value = leaf.value
            leaves.append(value.copy() if isinstance(value, np.ndarray) else value)
            continue
        array = next(arrays)
        key = leaf.origin.key
        leaves.append(array if key is None else jax.random.wrap_key_data(array, impl=key))
    return leaves


def _targets(
    snapshot: Snapshot, slices: Mapping[int, Sequence[jax.Device]], like: Any | None
) -> list[Sharding | None]:
    wanted: list[Any] = [None] * len(snapshot.leaves)
    if like is not None:
        wanted, structure = jax.tree.flatten(like)
        if structure != snapshot.structure:
            raise SnapshotError(
                f"like must have the structure of the snapshot, {snapshot.structure}, but has "
                f"{structure}"
            )
    targets: list[Sharding | None] = []
    for leaf, wish in zip(snapshot.leaves, wanted, strict=True):
        sharding = getattr(wish, "sharding", None)
        if isinstance(leaf, Constant) or (sharding is None and not leaf.origin.committed):
            targets.append(None)
        elif sharding is None:
            targets.append(layout.sharding_on(leaf.origin.sharding, slices))
        else:
            targets.append(sharding)
    return targets


def _plan(leaf: OnSlices, target: Sharding, turn: int) -> list[tuple[Piece, jax.Device]] | None:
    """Which piece each device gets; None if the target divides the array into other parts.

    Args:
        turn: Spreads the work over the slices that have the same piece.
    """
    by_region: dict[Region, list[Piece]] = {}
    for piece in leaf.pieces:
        by_region.setdefault(piece.region, []).append(piece)
    plan = []
    for device, region in layout.regions(target, leaf.origin.shape).items():
        pieces = by_region.get(region)
        if pieces is None:
            return None
        beside = (p for p in pieces if p.device.slice_index == device.slice_index)
        plan.append((next(beside, pieces[turn % len(pieces)]), device))
    return plan
