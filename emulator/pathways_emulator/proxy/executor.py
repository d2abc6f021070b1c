# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The boundary between the protocol and whoever computes.

Handlers know arrays by handle and speak in :class:`ArraySpec`; what is behind a handle is an opaque
:data:`Value` that only the executor looks into. So computing can move to other processes without a
change to the protocol's side.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Protocol

import numpy as np

from pathways_emulator.proxy.dtypes import DType
from pathways_emulator.proxy.shardings import Index, Shape, Sharding

# The executor's own handle on an array's shards.
type Value = Any

type HostArray = np.ndarray[Any, np.dtype[Any]]


def part_of(host: HostArray, index: Index) -> HostArray:
    """One part, as a view; a scalar stays an array without dimensions."""
    key: Any = (*index, ...)
    part: HostArray = host[key]
    return part


class CopySemantics(IntEnum):
    """What becomes of the input (``xla.ifrt.proto.ArrayCopySemantics``)."""

    UNSPECIFIED = 0
    ALWAYS_COPY = 1
    REUSE_INPUT = 2
    DONATE_INPUT = 3


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """An array without its data."""

    dtype: DType
    shape: Shape
    sharding: Sharding


@dataclass(frozen=True, slots=True)
class DeviceDescription:
    """A device as the runtime reports it.

    Attributes:
        kind: Such as ``cpu``.
        memory_kinds: What the device can address; the first is not special.
        default_memory_kind: One of them.
    """

    kind: str
    memory_kinds: tuple[str, ...]
    default_memory_kind: str


class Program(Protocol):
    """A compiled program.

    Attributes:
        name: Of the module.
        devices: Ids, in the order of the shards of its arguments and results.
        outputs: One spec per result.
        donatable: Indices of the arguments whose memory it may take.
        fingerprint: The same for the same program; b"" if the runtime has none.
        metadata: A serialized ``LoadedExecutableMetadataResponse``.
    """

    name: str
    devices: tuple[int, ...]
    outputs: tuple[ArraySpec, ...]
    donatable: frozenset[int]
    fingerprint: bytes
    metadata: bytes

    def cost_analysis(self) -> dict[str, Any]:
        """Properties by name, as XLA reports them."""
        ...

    def text(self) -> str:
        """The optimized program, for a human."""
        ...


class Executor(Protocol):
    """Holds arrays and runs programs. Thread-safe.

    All but :meth:`wait`, :meth:`to_host`, :meth:`reshard` and :meth:`compile` return without
    waiting for data. Errors of a computation surface in :meth:`wait` and :meth:`to_host`.
    """

    def describe(self, device: int) -> DeviceDescription:
        """One device."""
        ...

    def default_layout(self, dtype: DType, rank: int) -> bytes:
        """The serialized layout of an array on the devices."""
        ...

    def put(self, spec: ArraySpec, shards: Sequence[HostArray]) -> Value:
        """An array from host memory, one buffer per shard.

        The buffers may become the array's memory: nobody may write to them any more.
        """
        ...

    def assemble(self, spec: ArraySpec, parts: Sequence[Value]) -> Value:
        """One array of the shards of others, in the order of ``spec``'s devices."""
        ...

    def shards(self, value: Value) -> Sequence[Value]:
        """Each shard as an array of its own, sharing its memory."""
        ...

    def copy(self, value: Value, spec: ArraySpec, semantics: CopySemantics) -> Value:
        """The same shards on ``spec``'s devices and in its kind of memory."""
        ...

    def reshard(self, value: Value, source: ArraySpec, target: ArraySpec) -> Value:
        """The same array, cut into other parts on any devices; waits for the data."""
        ...

    def to_host(self, value: Value) -> HostArray:
        """The whole array; waits for it. The result may alias the device's memory."""
        ...

    def is_ready(self, value: Value) -> bool:
        """Whether :meth:`wait` would return or raise at once."""
        ...

    def wait(self, value: Value) -> None:
        """Returns when the data is there, and raises if it never will be."""
        ...

    def delete(self, value: Value) -> None:
        """Frees the memory; every array that shares it is deleted too."""
        ...

    def is_deleted(self, value: Value) -> bool:
        """Whether the memory was freed or donated."""
        ...

    def compile(self, program: bytes, options: bytes) -> Program:
        """Compiles a StableHLO portable artifact.

        Args:
            program: The artifact.
            options: A serialized ``xla.CompileOptionsProto``.
        """
        ...

    def busy(self, resume: Callable[[], None]) -> bool:
        """Whether too many computations are under way to start another without waiting.

        If so, ``resume`` is called once, from another thread, when that may have changed.
        """
        ...

    def under_way(self, devices: Collection[int]) -> list[Value]:
        """Values to wait for, to know that all that runs on these devices now has ended.

        What has ended is no longer held by the executor itself.
        """
        ...

    def shape(self, value: Value) -> Shape:
        """The shape of a value of one shard."""
        ...

    def layout(self, value: Value) -> str | None:
        """How the elements of a value of one shard lie in memory, as XLA spells it.

        None if they lie as :meth:`put` leaves them.
        """
        ...

    def relayout(self, value: Value, spec: ArraySpec, layout: str) -> Value:
        """The same data in another layout, for a value of one shard in a device's own memory."""
        ...

    def same_memory(self, value: Value) -> object:
        """Equal for values of one shard each that share their memory; waits for nothing."""
        ...

    def execute(
        self, program: Program, arguments: Sequence[Value], keep: frozenset[int]
    ) -> Sequence[Value]:
        """Starts a program.

        Args:
            program: One of :meth:`compile`.
            arguments: One value per parameter.
            keep: Indices of arguments that must not be donated, whatever the program says.
        """
        ...
