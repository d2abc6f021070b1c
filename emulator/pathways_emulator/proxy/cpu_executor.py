# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Computes on virtual CPU devices of this process."""

import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np
from jaxlib import xla_client

from pathways_emulator.proxy import xla
from pathways_emulator.proxy.cpu_program import CpuProgram, compile_program, compile_relayout
from pathways_emulator.proxy.dtypes import DType
from pathways_emulator.proxy.executor import (
    ArraySpec,
    CopySemantics,
    DeviceDescription,
    HostArray,
    Program,
    part_of,
)
from pathways_emulator.proxy.shardings import Shape, Sharding
from pathways_emulator.proxy.status import invalid_argument
from pathways_emulator.proxy.xla import XlaArray, XlaDevice, XlaSharding

# XLA's CPU client lets 32 computations be under way and then blocks whoever starts another. Staying
# below means that starting one never blocks the session, which must stay able to report a loss.
_MAX_UNDER_WAY = 24

# Results have their memory from the start of the computation, so that a client that does not wait
# for large ones could fill all there is. One computation may always be under way.
_MAX_BYTES_UNDER_WAY = 1 << 30


class _UnderWay(NamedTuple):
    """A computation: one of its results, where it runs, and what all results take."""

    result: XlaArray
    devices: frozenset[int]
    bytes: int


class Aval:
    """What jaxlib wants to know of an array beside its data."""

    __slots__ = ("dtype", "shape", "weak_type")

    def __init__(self, shape: Shape, dtype: np.dtype[np.generic]) -> None:
        self.shape = shape
        self.dtype = dtype
        self.weak_type = False


class CpuExecutor:
    """An :class:`~pathways_emulator.proxy.executor.Executor` in one process.

    Args:
        device_count: How many virtual devices.
    """

    def __init__(self, device_count: int) -> None:
        self._client = xla.make_cpu_client(device_count)
        self._devices: list[XlaDevice] = self._client.devices()
        # All sessions start computations in one order on all devices, or their collectives could
        # wait for each other.
        self._launch_lock = threading.Lock()
        self._under_way: deque[_UnderWay] = deque()
        self._drain = ThreadPoolExecutor(1, thread_name_prefix="executor-drain")
        self._sharding = lru_cache(maxsize=8192)(self._make_sharding)
        self._aval = lru_cache(maxsize=8192)(Aval)

    def close(self) -> None:
        """Ends the executor's threads; nothing may be asked of it afterwards."""
        self._drain.shutdown(wait=False, cancel_futures=True)

    def describe(self, device: int) -> DeviceDescription:
        xla_device = self._devices[device]
        return DeviceDescription(
            kind=xla_device.device_kind,
            memory_kinds=tuple(memory.kind for memory in xla_device.addressable_memories()),
            default_memory_kind=xla_device.default_memory().kind,
        )

    def default_layout(self, dtype: DType, rank: int) -> bytes:
        layout = self._client.get_default_layout(dtype.numpy, (1,) * rank, self._devices[0])
        text: str = layout._xla_layout().to_string()
        return text.encode()

    def put(self, spec: ArraySpec, shards: Sequence[HostArray]) -> XlaArray:
        devices = [self._devices[device] for device in spec.sharding.devices]
        if len(shards) != len(devices):
            raise invalid_argument(f"{len(shards)} buffers for {len(devices)} devices")
        return xla.jax.batched_device_put(
            self._aval(spec.shape, spec.dtype.numpy),
            self._sharding(spec.sharding),
            shards,
            devices,
            committed=True,
            # The buffers are ours and never change. Other semantics fail in jaxlib 0.12 if some,
            # but not all, shards are copies of each other.
            host_buffer_semantics=xla.jax.HostBufferSemantics.ZERO_COPY,
            enable_x64=True,
        )

    def assemble(self, spec: ArraySpec, parts: Sequence[XlaArray]) -> XlaArray:
        shards = [shard for part in parts for shard in _shards_of(part)]
        if len(shards) != len(spec.sharding.devices):
            raise invalid_argument(f"{len(shards)} shards for {len(spec.sharding.devices)} devices")
        return xla.jax.ArrayImpl(
            self._aval(spec.shape, spec.dtype.numpy),
            self._sharding(spec.sharding),
            shards,
            True,
            _skip_checks=True,
        )

    def shards(self, value: XlaArray) -> Sequence[XlaArray]:
        return _shards_of(value)

    def copy(self, value: XlaArray, spec: ArraySpec, semantics: CopySemantics) -> XlaArray:
        devices = tuple(self._devices[device] for device in spec.sharding.devices)
        copied = xla.jax.batched_copy_array_to_devices_with_sharding(
            [value],
            [xla.jax.DeviceList(devices)],
            [self._sharding(spec.sharding)],
            [_COPY_SEMANTICS[semantics]],
        )
        return copied[0]

    def reshard(self, value: XlaArray, source: ArraySpec, target: ArraySpec) -> XlaArray:
        if not source.shape or len(source.sharding.devices) == 1:
            whole, _ = _shards_of(value)[0]._to_np_array_did_copy()
        else:
            whole = np.empty(source.shape, source.dtype.numpy)
            indices = source.sharding.indices(source.shape)
            for index, shard in zip(indices, _shards_of(value), strict=True):
                whole[index], _ = shard._to_np_array_did_copy()
        parts = target.sharding.indices(target.shape)
        return self.put(target, [part_of(whole, index) for index in parts])

    def to_host(self, value: XlaArray) -> HostArray:
        host: HostArray
        host, _ = value._to_np_array_did_copy()
        return host

    def is_ready(self, value: XlaArray) -> bool:
        return _is_done(value)

    def wait(self, value: XlaArray) -> None:
        value.block_until_ready()

    def delete(self, value: XlaArray) -> None:
        value.delete()

    def is_deleted(self, value: XlaArray) -> bool:
        deleted: bool = value.is_deleted()
        return deleted

    def compile(self, program: bytes, options: bytes) -> CpuProgram:
        compiled = compile_program(self._client, self._devices, program, options)
        compiled.handlers = [
            xla.jax.array_result_handler(
                self._aval(spec.shape, spec.dtype.numpy), self._sharding(spec.sharding), True
            )
            for spec in compiled.outputs
        ]
        return compiled

    def busy(self, resume: Callable[[], None]) -> bool:
        with self._launch_lock:
            under_way = self._under_way
            while under_way and _is_done(under_way[0].result):
                under_way.popleft()
            taken = sum(computation.bytes for computation in under_way)
            if len(under_way) < _MAX_UNDER_WAY and taken < _MAX_BYTES_UNDER_WAY:
                return False
            oldest = under_way[0].result
        self._drain.submit(_wait_then, oldest, resume)
        return True

    def execute(
        self, program: Program, arguments: Sequence[XlaArray], keep: frozenset[int]
    ) -> Sequence[XlaArray]:
        if not isinstance(program, CpuProgram):
            raise TypeError(f"{type(program).__name__} is not a program of this executor")
        values = list(arguments)
        for index in keep & program.donatable:
            values[index] = self._duplicate(values[index])
        with self._launch_lock:
            results = program.executable.execute_sharded(values)
            outputs: list[XlaArray] = results.consume_with_handlers(program.handlers)
            if outputs:
                # All results are ready at once, and the smallest is the cheapest to hold on to.
                self._under_way.append(
                    _UnderWay(
                        outputs[program.smallest_output],
                        frozenset(program.devices),
                        program.output_bytes,
                    )
                )
        return outputs

    def under_way(self, devices: Collection[int]) -> list[XlaArray]:
        with self._launch_lock:
            rest = [entry for entry in self._under_way if not _is_done(entry.result)]
            self._under_way = deque(rest)
        return [entry.result for entry in rest if not entry.devices.isdisjoint(devices)]

    def shape(self, value: XlaArray) -> Shape:
        shape: Shape = value.aval.shape
        return shape

    def layout(self, value: XlaArray) -> str | None:
        layout = value._pjrt_layout
        # On a CPU nothing but the order of dimensions is a program's to choose: whether elements
        # of less than a byte are packed depends on the kind of memory.
        order = list(layout._xla_layout().minor_to_major())
        return None if order == list(reversed(range(len(self.shape(value))))) else str(layout)

    def relayout(self, value: XlaArray, spec: ArraySpec, layout: str) -> XlaArray:
        # Only a program's result can have a layout of its own.
        [device] = spec.sharding.devices
        executable = compile_relayout(
            self._client, self._devices[device], spec.dtype.name, spec.shape, layout
        )
        handler = xla.jax.array_result_handler(
            self._aval(spec.shape, spec.dtype.numpy), self._sharding(spec.sharding), True
        )
        return executable.execute_sharded([value]).consume_with_handlers([handler])[0]

    def same_memory(self, value: XlaArray) -> object:
        # Memory without a byte has an address too, and may share it with anything.
        return value.unsafe_buffer_pointer() if prod(self.shape(value)) else id(value)

    def _duplicate(self, value: XlaArray) -> XlaArray:
        sharding = value._sharding
        devices = tuple(shard._sharding._device for shard in _shards_of(value))
        return xla.jax.batched_copy_array_to_devices_with_sharding(
            [value],
            [xla.jax.DeviceList(devices)],
            [sharding],
            [xla.jax.ArrayCopySemantics.ALWAYS_COPY],
        )[0]

    def _make_sharding(self, sharding: Sharding) -> XlaSharding:
        devices = tuple(self._devices[device] for device in sharding.devices)
        if len(devices) == 1:
            return xla.jax.SingleDeviceSharding(devices[0], memory_kind=sharding.memory_kind)
        hlo = sharding.hlo if sharding.hlo is not None else xla.hlo.HloSharding.replicate()
        return xla.jax.GSPMDSharding(
            xla.jax.DeviceList(devices), hlo, memory_kind=sharding.memory_kind
        )


_COPY_SEMANTICS = {
    CopySemantics.UNSPECIFIED: xla.jax.ArrayCopySemantics.ALWAYS_COPY,
    CopySemantics.ALWAYS_COPY: xla.jax.ArrayCopySemantics.ALWAYS_COPY,
    CopySemantics.REUSE_INPUT: xla.jax.ArrayCopySemantics.REUSE_INPUT,
    # XLA's CPU client donates in few cases only; whoever asked for it forgets the input anyway.
    CopySemantics.DONATE_INPUT: xla.jax.ArrayCopySemantics.REUSE_INPUT,
}


def _shards_of(value: XlaArray) -> Sequence[XlaArray]:
    # What lies on one device is its own shard; to ask it for its shards imports JAX.
    if isinstance(value._sharding, xla.jax.SingleDeviceSharding):
        return (value,)
    shards: list[XlaArray] = value._arrays
    return shards


def _is_done(value: XlaArray) -> bool:
    # An array that a later computation took as a donation can't be asked any more.
    return bool(value.is_deleted() or value.is_ready())


def _wait_then(value: XlaArray, resume: Callable[[], None]) -> None:
    try:
        value.block_until_ready()
    except xla_client.XlaRuntimeError:
        pass  # It failed or was donated: in any case it no longer occupies a place.
    finally:
        resume()
