# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Arrays from the client's host memory, and back to it."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from math import prod

import numpy as np

from pathways_emulator.descriptors import Proto
from pathways_emulator.proxy.arrays import error_array
from pathways_emulator.proxy.dtypes import DType, dtype_of_kind
from pathways_emulator.proxy.executor import ArraySpec, HostArray, Value, part_of
from pathways_emulator.proxy.handlers.results import (
    array_handles,
    derive,
    given,
    read_spec,
    spec_of,
    store,
)
from pathways_emulator.proxy.host_buffers import Buffer
from pathways_emulator.proxy.reply import Reply
from pathways_emulator.proxy.session import Handler, Session
from pathways_emulator.proxy.shardings import Shape, read_sharding
from pathways_emulator.proxy.status import (
    Code,
    NotYet,
    Status,
    harmless,
    invalid_argument,
    unimplemented,
)


def serve_make_array_from_host_buffer(session: Session, request: Proto, reply: Reply) -> None:
    """One buffer for every shard: a single device, or copies of the same."""
    with _taken(session, [request.host_buffer_handle]) as [buffer]:
        spec = ArraySpec(
            dtype_of_kind(request.dtype.kind),
            tuple(request.shape.dims),
            read_sharding(request.sharding),
        )
        host = view(buffer, spec.dtype, spec.shape, _strides(request))
        indices = spec.sharding.indices(spec.shape)
        [reply.body.array_handle] = derive(
            session,
            given(request.array_handle),
            [spec],
            [],
            lambda _: [session.executor.put(spec, [part_of(host, index) for index in indices])],
        )


def serve_make_arrays_from_host_buffer_shards(
    session: Session, request: Proto, reply: Reply
) -> None:
    """Several arrays, each of several buffers that serve one shard or more."""
    handles = [buffer.host_buffer_handle for spec in request.specs for buffer in spec.host_buffers]
    with _taken(session, handles) as buffers:
        specs, shards = _read_shards(request, iter(buffers))

        def put(_: list[Value]) -> Sequence[Value]:
            return [session.executor.put(*pair) for pair in zip(specs, shards, strict=True)]

        reply.body.array_handles.extend(derive(session, request.array_handles, specs, [], put))


def _read_shards(
    request: Proto, buffers: Iterator[Buffer]
) -> tuple[list[ArraySpec], list[list[HostArray]]]:
    """The arrays of a request, and the host's data for each shard of each."""
    specs = []
    shards: list[list[HostArray]] = []
    for proto in request.specs:
        spec = read_spec(proto.array_spec)
        parts: dict[int, HostArray] = {}
        for indices, buffer in zip(
            proto.addressable_shard_indices, proto.host_buffers, strict=True
        ):
            host = view(
                next(buffers),
                dtype_of_kind(buffer.dtype.kind),
                tuple(buffer.shape.dims),
                _strides(buffer),
            )
            parts.update((index, host) for index in indices.indices)
        count = len(spec.sharding.devices)
        if sorted(parts) != list(range(count)):
            raise invalid_argument(f"buffers for shards {sorted(parts)} of an array of {count}")
        specs.append(spec)
        shards.append([parts[index] for index in range(count)])
    return specs, shards


def serve_make_error_arrays(session: Session, request: Proto, reply: Reply) -> None:
    """Arrays that the client declares to be errors."""
    known = request.error.code in {int(code) for code in Code}
    status = Status(
        Code(request.error.code) if known else Code.UNKNOWN, harmless(request.error.message)
    )
    arrays = [error_array(status, read_spec(spec)) for spec in request.array_specs]
    reply.body.array_handles.extend(store(session, request.array_handles, arrays))


def serve_copy_to_host_buffer(session: Session, request: Proto, reply: Reply) -> None:
    """Puts an array where the client can fetch it, as soon as it is computed."""
    array = session.arrays.get(request.array_handle)
    strides = _strides(request)
    handle = request.host_buffer_handle

    def copy(values: list[Value]) -> None:
        spec = spec_of(array)
        host = session.executor.to_host(values[0])
        session.host_buffers.keep(handle, to_bytes(host, spec.dtype, strides))

    session.when_ready([array], reply, copy)


def view(buffer: Buffer, dtype: DType, shape: Shape, strides: tuple[int, ...] | None) -> HostArray:
    """The client's buffer as an array, without a copy.

    Args:
        buffer: The smallest region with all elements; the first element comes first.
        dtype: Of the elements.
        shape: Of the array.
        strides: In bytes per dimension; None means dense and row-major.

    Raises:
        ProxyError: INVALID_ARGUMENT, if the buffer is not of that size.
    """
    if dtype.is_token:
        return np.zeros((0,), np.bool_)
    size = dtype.numpy.itemsize
    elements = prod(shape)
    if strides is None or elements == 0:
        expected = elements * size
    else:
        expected = size + sum(
            (count - 1) * stride for count, stride in zip(shape, strides, strict=True) if count > 1
        )
    if len(buffer) != expected:
        raise invalid_argument(
            f"a host buffer of {len(buffer)} bytes for an array of shape {shape}, type "
            f"{dtype.name}, byte strides {strides}; it must have {expected}"
        )
    host: HostArray = np.ndarray(shape, dtype.numpy, buffer, strides=strides if elements else None)
    return host


def to_bytes(host: HostArray, dtype: DType, strides: tuple[int, ...] | None) -> memoryview:
    """An array as the bytes that the client expects, the inverse of :func:`view`.

    Raises:
        ProxyError: UNIMPLEMENTED, for strides that leave gaps.
    """
    if dtype.is_token:
        return memoryview(b"")
    if strides is None or host.size == 0:
        dense = np.array(host, order="C", copy=True)
    else:
        # Elements in the order of the strides, largest first, are dense if there are no gaps.
        order = sorted(range(host.ndim), key=lambda axis: -strides[axis])
        dense = np.array(host.transpose(order), order="C", copy=True)
        for axis, dense_stride in zip(order, dense.strides, strict=True):
            if host.shape[axis] > 1 and strides[axis] != dense_stride:
                raise unimplemented(f"a copy to host memory with byte strides {strides}")
    return memoryview(dense.reshape(-1).view(np.uint8))


@contextmanager
def _taken(session: Session, handles: list[int]) -> Iterator[list[Buffer]]:
    """Buffers that the client sent; they are used once, unless the request must wait.

    Raises:
        NotYet: One of them is still on its way.
    """
    found = [session.host_buffers.get(handle) for handle in handles]
    buffers = [buffer for buffer in found if buffer is not None]
    if len(buffers) < len(handles):
        raise NotYet
    try:
        yield buffers
    except NotYet:
        raise
    except BaseException:
        session.host_buffers.delete_all(handles)
        raise
    session.host_buffers.delete_all(handles)


def _strides(request: Proto) -> tuple[int, ...] | None:
    return tuple(request.byte_strides.strides) if request.HasField("byte_strides") else None


def _array_handle(request: Proto) -> Iterable[int]:
    return given(request.array_handle)


HANDLERS = {
    "make_array_from_host_buffer_request": Handler(
        serve_make_array_from_host_buffer, results=_array_handle
    ),
    "make_arrays_from_host_buffer_shards_request": Handler(
        serve_make_arrays_from_host_buffer_shards, results=array_handles
    ),
    "make_error_arrays_request": Handler(serve_make_error_arrays, results=array_handles),
    "copy_to_host_buffer_request": Handler(serve_copy_to_host_buffer),
}
