# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Copies of a training state that outlive the slices it lies on.

An array of which every part is on two slices at least is copied to the pinned host memory beside
its devices: whichever slice goes, another has the same part. Any other is copied to the memory of
this process. A copy is dispatched before the state can be donated, and collected later.
"""

from collections.abc import Set
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
import numpy.typing as npt
from jax.sharding import Sharding

from pathways_elastic import layout
from pathways_elastic.errors import SnapshotError
from pathways_elastic.layout import Region, Shape

_NUMBERS = (bool, int, float, complex, np.generic)


@dataclass(frozen=True, slots=True)
class Origin:
    """What an array was when it was copied.

    Attributes:
        committed: False if JAX was free to move it to another device.
        key: The implementation of the random keys that the array's numbers stand for.
    """

    shape: Shape
    dtype: npt.DTypeLike
    sharding: Sharding
    committed: bool
    key: Any | None


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of an array in the host memory beside one device."""

    device: jax.Device
    region: Region
    data: jax.Array


@dataclass(frozen=True, slots=True)
class OnSlices:
    """An array as pieces; of each slice that has a part, one."""

    origin: Origin
    pieces: tuple[Piece, ...]

    @property
    def whole(self) -> bool:
        """Whether there is still a piece of every part."""
        wanted = set(layout.regions(self.origin.sharding, self.origin.shape).values())
        return wanted == {piece.region for piece in self.pieces}

    @property
    def safe(self) -> bool:
        """Whether it stays whole whichever slice is lost."""
        owners: dict[Region, set[int]] = {}
        for piece in self.pieces:
            owners.setdefault(piece.region, set()).add(piece.device.slice_index)
        return self.whole and all(len(slices) > 1 for slices in owners.values())

    def without(self, slices: Set[int]) -> "OnSlices":
        """Its pieces on other slices."""
        pieces = tuple(p for p in self.pieces if p.device.slice_index not in slices)
        return replace(self, pieces=pieces)

    def start_to_client(self) -> None:
        """Begins what :meth:`to_client` waits for."""
        for data in self._parts().values():
            data.copy_to_host_async()

    def to_client(self) -> "InClient":
        """The whole array in this process's memory; waits for it."""
        value = np.empty(self.origin.shape, self.origin.dtype)
        for region, data in self._parts().items():
            value[tuple(slice(*bounds) for bounds in region)] = np.asarray(data)
        return InClient(self.origin, value)

    def _parts(self) -> dict[Region, jax.Array]:
        return {piece.region: piece.data for piece in self.pieces}


@dataclass(frozen=True, slots=True)
class InClient:
    """An array in this process's memory."""

    origin: Origin
    value: npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Constant:
    """A number or a NumPy array, which was in this process's memory anyway."""

    value: Any


type Leaf = OnSlices | InClient | Constant


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """Where a snapshot is.

    Attributes:
        step: That was given with it.
        slices: Those whose host memory has copies.
        bytes_on_slices: In the pinned host memory of slices, all copies together.
        bytes_in_client: In the memory of this process.
        safe: Whether it outlives the loss of any one slice.
    """

    step: int
    slices: Set[int]
    bytes_on_slices: int
    bytes_in_client: int
    safe: bool


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A whole state: all of its arrays are there."""

    step: int
    structure: Any
    leaves: tuple[Leaf, ...]

    @property
    def info(self) -> SnapshotInfo:
        pieces = [piece for leaf in self._on_slices() for piece in leaf.pieces]
        values = [leaf.value for leaf in self.leaves if not isinstance(leaf, OnSlices)]
        return SnapshotInfo(
            step=self.step,
            slices=frozenset(piece.device.slice_index for piece in pieces),
            bytes_on_slices=sum(piece.data.nbytes for piece in pieces),
            bytes_in_client=sum(np.asarray(value).nbytes for value in values),
            safe=self.safe,
        )

    @property
    def safe(self) -> bool:
        """Whether it outlives the loss of any one slice."""
        return all(leaf.safe for leaf in self._on_slices())

    def whole_without(self, slices: Set[int]) -> bool:
        """Whether other slices, and this process, have all of it."""
        return all(leaf.without(slices).whole for leaf in self._on_slices())

    def _on_slices(self) -> list[OnSlices]:
        return [leaf for leaf in self.leaves if isinstance(leaf, OnSlices)]

    def kept_on(self, slices: Set[int]) -> "Snapshot | None":
        """What is left of it on some slices, if that is whole.

        A slice that was lost and is back has lost its copies, so each is asked for one.
        """
        by_slice: dict[int, jax.Array] = {}
        for leaf in self._on_slices():
            for piece in leaf.pieces:
                smallest = by_slice.get(piece.device.slice_index)
                if smallest is None or piece.data.nbytes < smallest.nbytes:
                    by_slice[piece.device.slice_index] = piece.data
        # That an array was ready once is not asked again; a copy of it has to be made.
        copies = {
            index: jax.device_put(data, data.sharding, may_alias=False)
            for index, data in by_slice.items()
            if index in slices
        }
        kept = {index for index, copy in copies.items() if _is_there(copy)}
        leaves = tuple(
            replace(leaf, pieces=tuple(p for p in leaf.pieces if p.device.slice_index in kept))
            if isinstance(leaf, OnSlices)
            else leaf
            for leaf in self.leaves
        )
        if not all(leaf.whole for leaf in leaves if isinstance(leaf, OnSlices)):
            return None
        return replace(self, leaves=leaves)

    def to_client(self) -> "Snapshot":
        """The same in this process's memory; waits for it."""
        for leaf in self._on_slices():
            leaf.start_to_client()
        leaves = (leaf.to_client() if isinstance(leaf, OnSlices) else leaf for leaf in self.leaves)
        return replace(self, leaves=tuple(leaves))


def _is_there(data: jax.Array) -> bool:
    try:
        data.block_until_ready()
    except jax.errors.JaxRuntimeError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Staged:
    """A snapshot of which the copies are on their way to host memory."""

    step: int
    structure: Any
    origins: tuple[Origin | Constant, ...]
    copies: tuple[jax.Array, ...]

    def collect(self) -> Snapshot:
        """Waits until the state is whole in host memory.

        Raises:
            jax.errors.JaxRuntimeError: The state, or a slice it lies on, was lost before.
        """
        jax.block_until_ready(self.copies)
        copies = iter(self.copies)
        leaves = tuple(
            origin if isinstance(origin, Constant) else _collect(origin, next(copies))
            for origin in self.origins
        )
        # A slice may have gone while the pieces were made; then the last ones are errors all over.
        pieces = [leaf.pieces for leaf in leaves if isinstance(leaf, OnSlices)]
        if pieces:
            jax.block_until_ready([piece.data for piece in pieces[-1]])
        return Snapshot(self.step, self.structure, leaves)


def _collect(origin: Origin, copy: jax.Array) -> OnSlices | InClient:
    where = layout.regions(origin.sharding, origin.shape)
    if not layout.survives_any_loss(where):
        return InClient(origin, np.asarray(copy))
    # Now, because an array as a whole is lost with any of its slices, and its pieces are not.
    pieces: dict[tuple[int, Region], Piece] = {}
    for shard in copy.addressable_shards:
        region = where[shard.device]
        pieces.setdefault(
            (shard.device.slice_index, region), Piece(shard.device, region, shard.data)
        )
    return OnSlices(origin, tuple(pieces.values()))


def stage(step: int, state: Any) -> Staged:
    """Dispatches the copies of a state. It may be donated as soon as this returns.

    Args:
        step: The step that made it.
        state: Any pytree of arrays and numbers.

    Raises:
        SnapshotError: It holds something else, or an array that was donated.
    """
    leaves, structure = jax.tree.flatten(state)
    if not leaves:
        raise SnapshotError(f"the snapshot holds no arrays: {state!r}")
    origins: list[Origin | Constant] = []
    sources: list[jax.Array] = []
    for number, leaf in enumerate(leaves):
        if (fault := _fault_of(leaf)) is not None:
            path = jax.tree_util.keystr(jax.tree_util.tree_leaves_with_path(state)[number][0])
            raise SnapshotError(f"snapshot{path} {fault}")
        if not isinstance(leaf, jax.Array):
            origins.append(Constant(leaf.copy() if isinstance(leaf, np.ndarray) else leaf))
            continue
        key = None
        if jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            key, leaf = jax.random.key_impl(leaf), jax.random.key_data(leaf)
        committed = bool(getattr(leaf, "committed", True))
        origins.append(Origin(leaf.shape, leaf.dtype, leaf.sharding, committed, key))
        sources.append(leaf)
    copies = jax.device_put(
        sources, [layout.in_host(leaf.sharding) for leaf in sources], may_alias=False
    )
    return Staged(step, structure, tuple(origins), tuple(copies))


def _fault_of(leaf: object) -> str | None:
    if isinstance(leaf, jax.core.Tracer):
        return "is being traced: call maybe_snapshot outside of jit"
    if isinstance(leaf, jax.Array):
        if leaf.is_deleted():
            return (
                "was donated or deleted already: give the state that the step returned, before it "
                "goes into the next step"
            )
        return None
    if isinstance(leaf, _NUMBERS) or (isinstance(leaf, np.ndarray) and not leaf.dtype.hasobject):
        return None
    return f"is neither an array nor a number but {type(leaf).__name__}: {leaf!r:.80}"
