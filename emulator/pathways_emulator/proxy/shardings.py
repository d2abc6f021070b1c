# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""How an array lies on devices: IFRT's shardings, read from and written to messages."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np

from pathways_emulator.descriptors import Proto, messages
from pathways_emulator.proxy import xla
from pathways_emulator.proxy.status import invalid_argument, unimplemented
from pathways_emulator.proxy.xla import HloSharding

type Shape = tuple[int, ...]
type Index = tuple[slice[int, int, None], ...]

_SINGLE_DEVICE = "xla::ifrt::SingleDeviceSharding"
_HLO = "xla::ifrt::HloSharding"
_EVEN = "xla::ifrt::ConcreteEvenSharding"
_CONCRETE = "xla::ifrt::ConcreteSharding"
_OPAQUE = "xla::ifrt::OpaqueSharding"


@dataclass(frozen=True, slots=True, eq=False)
class Sharding:
    """Devices and, where it is known, which part of an array each of them holds.

    Compared by identity; :func:`read_sharding` gives the same object for the same message.

    Attributes:
        devices: Ids, in the order of the shards.
        memory_kind: ``device``, ``pinned_host`` or ``unpinned_host``; None for the default.
        hlo: The tiling. None if the message only lists shapes or one device.
        shard_shapes: Of each shard, if the message lists them.
        type_name: Of the message, such as ``xla::ifrt::HloSharding``.
        data: The serialized message.
    """

    devices: tuple[int, ...]
    memory_kind: str | None
    hlo: HloSharding | None
    shard_shapes: tuple[Shape, ...] | None
    type_name: str
    data: bytes

    def write_to(self, proto: Proto) -> None:
        """Fills an ``xla.ifrt.ShardingProto``."""
        proto.serialized_sharding.type_name = self.type_name
        proto.serialized_sharding.data = self.data

    def indices(self, shape: Shape) -> tuple[Index, ...]:
        """Which part of an array of this shape each shard is.

        Raises:
            ProxyError: UNIMPLEMENTED, if the message does not say.
        """
        whole = tuple(slice(0, size) for size in shape)
        if len(self.devices) == 1:
            return (whole,)
        if self.shard_shapes is not None and all(part == shape for part in self.shard_shapes):
            return (whole,) * len(self.devices)
        if self.hlo is None:
            raise unimplemented(f"the parts of an array of shape {shape} under {self.type_name}")
        return _tile_indices(self.hlo, shape, len(self.devices))

    def shard_shapes_of(self, shape: Shape) -> tuple[Shape, ...]:
        """The shape of each shard of an array of this shape.

        Raises:
            ProxyError: UNIMPLEMENTED, if the message does not say.
        """
        if self.shard_shapes is not None:
            return self.shard_shapes
        return tuple(
            tuple(part.stop - part.start for part in index) for index in self.indices(shape)
        )


def read_sharding(proto: Proto) -> Sharding:
    """Reads an ``xla.ifrt.ShardingProto``.

    Raises:
        ProxyError: UNIMPLEMENTED, for a kind of sharding the emulator does not know.
    """
    serialized = proto.serialized_sharding
    return _read(serialized.type_name, serialized.data)


def single_device_sharding(device: int, memory_kind: str | None) -> Sharding:
    """All of an array on one device."""
    message = messages()["xla.ifrt.SingleDeviceShardingProto"](device_id=device)
    if memory_kind is not None:
        message.memory_kind = memory_kind
    return _read(_SINGLE_DEVICE, message.SerializeToString(deterministic=True))


def hlo_sharding(devices: Sequence[int], memory_kind: str | None, op_sharding: bytes) -> Sharding:
    """A tiling as XLA states it; ``op_sharding`` is a serialized ``xla.OpSharding``."""
    message = messages()["xla.ifrt.HloShardingProto"]()
    message.devices.device_ids.extend(devices)
    if memory_kind is not None:
        message.memory_kind = memory_kind
    message.xla_op_sharding.MergeFromString(op_sharding)
    return _read(_HLO, message.SerializeToString(deterministic=True))


def even_sharding(
    devices: Sequence[int], memory_kind: str | None, shape: Shape, shard_shape: Shape
) -> Sharding:
    """Shards of one shape, where nothing says which part of the array they are."""
    message = messages()["xla.ifrt.ConcreteEvenShardingProto"]()
    message.devices.device_ids.extend(devices)
    if memory_kind is not None:
        message.memory_kind = memory_kind
    message.shape.dims.extend(shape)
    message.shard_shape.dims.extend(shard_shape)
    return _read(_EVEN, message.SerializeToString(deterministic=True))


def with_devices(sharding: Sharding, devices: Sequence[int], memory_kind: str | None) -> Sharding:
    """The same parts on other devices, in another kind of memory."""
    if sharding.type_name == _SINGLE_DEVICE:
        return single_device_sharding(devices[0], memory_kind)
    message = messages()[_MESSAGE_OF[sharding.type_name]].FromString(sharding.data)
    del message.devices.device_ids[:]
    message.devices.device_ids.extend(devices)
    message.ClearField("memory_kind")
    if memory_kind is not None:
        message.memory_kind = memory_kind
    return _read(sharding.type_name, message.SerializeToString(deterministic=True))


_MESSAGE_OF = {
    _SINGLE_DEVICE: "xla.ifrt.SingleDeviceShardingProto",
    _HLO: "xla.ifrt.HloShardingProto",
    _EVEN: "xla.ifrt.ConcreteEvenShardingProto",
    _CONCRETE: "xla.ifrt.ConcreteShardingProto",
    _OPAQUE: "xla.ifrt.OpaqueShardingProto",
}


@lru_cache(maxsize=8192)
def _read(type_name: str, data: bytes) -> Sharding:
    if type_name not in _MESSAGE_OF:
        raise unimplemented(f"sharding of type {type_name!r}")
    message = messages()[_MESSAGE_OF[type_name]].FromString(data)
    memory_kind = message.memory_kind if message.HasField("memory_kind") else None
    if type_name == _SINGLE_DEVICE:
        return Sharding((message.device_id,), memory_kind, None, None, type_name, data)
    devices = tuple(message.devices.device_ids)
    if not devices:
        raise invalid_argument(f"a sharding of type {type_name} has no devices")
    hlo: HloSharding | None = None
    shard_shapes: tuple[Shape, ...] | None = None
    if type_name == _HLO:
        hlo = read_op_sharding(message.xla_op_sharding.SerializeToString())
    elif type_name == _EVEN:
        shard_shapes = (tuple(message.shard_shape.dims),) * len(devices)
        hlo = _guess_tiling(tuple(message.shape.dims), shard_shapes[0], len(devices))
    elif type_name == _CONCRETE:
        shard_shapes = tuple(tuple(shape.dims) for shape in message.shard_shapes)
    return Sharding(devices, memory_kind, hlo, shard_shapes, type_name, data)


def read_op_sharding(op_sharding: bytes) -> HloSharding:
    """jaxlib's object of a serialized ``xla.OpSharding``."""
    proto = xla.hlo.OpSharding()
    proto.ParseFromString(op_sharding)
    return xla.hlo.HloSharding.from_proto(proto)


def _guess_tiling(shape: Shape, shard_shape: Shape, count: int) -> HloSharding | None:
    """The only row-major tiling that gives ``count`` shards of that shape, if there is one."""
    if len(shape) != len(shard_shape) or 0 in shard_shape:
        return None
    parts = [-(-size // part) for size, part in zip(shape, shard_shape, strict=True)]
    return xla.hlo.HloSharding.iota_tile(parts) if prod(parts) == count and count > 1 else None


def _tile_indices(hlo: HloSharding, shape: Shape, count: int) -> tuple[Index, ...]:
    whole = tuple(slice(0, size) for size in shape)
    if not hlo.is_tiled():
        return (whole,) * count
    rank = len(shape)
    dimensions = hlo.tile_assignment_dimensions()
    order = np.asarray(hlo.tile_assignment_devices()).reshape(dimensions)
    tile = [-(-size // parts) for size, parts in zip(shape, dimensions[:rank], strict=True)]
    result: list[Index] = [whole] * count
    # Trailing dimensions of the tile assignment are copies of the same part.
    for place, device in np.ndenumerate(order):
        result[int(device)] = tuple(
            slice(min(i * part, size), min((i + 1) * part, size))
            for i, part, size in zip(place[:rank], tile, shape, strict=True)
        )
    return tuple(result)
