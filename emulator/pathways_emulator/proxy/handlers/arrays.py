# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Arrays from arrays, and their end."""

from collections.abc import Sequence

from pathways_emulator.descriptors import Proto
from pathways_emulator.proxy.arrays import DELETED
from pathways_emulator.proxy.dtypes import dtype_of_kind
from pathways_emulator.proxy.executor import ArraySpec, Value
from pathways_emulator.proxy.handlers.remap import serve_remap_arrays
from pathways_emulator.proxy.handlers.results import (
    derive,
    end_donated,
    given,
    read_spec,
    respec,
    result_handle,
    result_handles,
    semantics_of,
    spec_of,
)
from pathways_emulator.proxy.reply import Reply
from pathways_emulator.proxy.session import Handler, Session
from pathways_emulator.proxy.shardings import read_sharding, single_device_sharding, with_devices
from pathways_emulator.proxy.status import invalid_argument, unimplemented


def serve_assemble(session: Session, request: Proto, reply: Reply) -> None:
    """One array of arrays that are its shards."""
    sources = session.arrays.get_all(request.single_device_array_handles)
    dtype = (
        dtype_of_kind(request.dtype.kind)
        if request.HasField("dtype")
        else spec_of(sources[0]).dtype
    )
    spec = ArraySpec(dtype, tuple(request.shape.dims), read_sharding(request.sharding))
    [reply.body.array_handle] = derive(
        session,
        given(request.result_handle),
        [spec],
        sources,
        lambda parts: [session.executor.assemble(spec, parts)],
    )


def serve_disassemble(session: Session, request: Proto, reply: Reply) -> None:
    """Each shard as an array of its own."""
    source = session.arrays.get(request.array_handle)
    spec = spec_of(source)
    specs = shard_specs(spec)
    handles = derive(
        session,
        request.result_handles,
        specs,
        [source],
        lambda values: session.executor.shards(values[0]),
    )
    reply.body.array_handles.extend(handles)


def serve_fully_replicated_shard(session: Session, request: Proto, reply: Reply) -> None:
    """The first of shards that are all the same."""
    source = session.arrays.get(request.array_handle)
    spec = spec_of(source)
    sharding = spec.sharding
    one = respec(spec, single_device_sharding(sharding.devices[0], sharding.memory_kind))
    [reply.body.array_handle] = derive(
        session,
        given(request.result_handle),
        [one],
        [source],
        lambda values: [session.executor.shards(values[0])[0]],
    )


def serve_copy_arrays(session: Session, request: Proto, reply: Reply) -> None:
    """The same shards on other devices, or in another kind of memory."""
    sources = session.arrays.get_all(request.array_handles)
    semantics = semantics_of(request)
    specs = []
    for source in sources:
        spec = spec_of(source)
        devices = tuple(request.device_ids) or spec.sharding.devices
        memory_kind = (
            request.memory_kind or None
            if request.HasField("memory_kind")
            else spec.sharding.memory_kind
        )
        specs.append(respec(spec, with_devices(spec.sharding, devices, memory_kind)))

    def copy(values: list[Value]) -> Sequence[Value]:
        return [
            session.executor.copy(value, spec, semantics)
            for value, spec in zip(values, specs, strict=True)
        ]

    reply.body.array_handles.extend(derive(session, request.result_handles, specs, sources, copy))
    end_donated(sources, semantics)


def serve_reshard_arrays(session: Session, request: Proto, reply: Reply) -> None:
    """The same arrays, cut into other parts on any devices; goes through host memory."""
    sources = session.arrays.get_all(request.array_handles)
    specs = [read_spec(spec) for spec in request.array_specs]
    semantics = semantics_of(request)

    def reshard(values: list[Value]) -> Sequence[Value]:
        return [
            session.executor.reshard(value, spec_of(source), spec)
            for value, source, spec in zip(values, sources, specs, strict=True)
        ]

    reply.body.array_handles.extend(
        derive(session, request.result_handles, specs, sources, reshard)
    )
    end_donated(sources, semantics)


def serve_bitcast_arrays(_session: Session, request: Proto, _reply: Reply) -> None:
    """No client that we know of asks for it."""
    raise unimplemented(f"{request.DESCRIPTOR.name}: the emulator does not serve this request")


def serve_delete_array(session: Session, request: Proto, reply: Reply) -> None:
    """Frees memory; the handles stay."""
    # Each by itself, as an error in one is no reason not to wait for the others; and all of them
    # before the first is freed, as this may be served again.
    arrays = [session.arrays.get(handle) for handle in request.array_handle]
    for array in arrays:
        value = array.value
        if value is not None:
            session.executor.delete(value)
    [future] = session.arrays.new_handles(1)
    session.futures[future] = True
    reply.body.deletion_future_handle = future
    reply.unnumbered = True


def serve_is_array_deleted(session: Session, request: Proto, reply: Reply) -> None:
    """Whether an array's memory was freed or given to a computation."""
    array = session.arrays.get(request.array_handle)
    value = array.value
    reply.body.deleted = array.error is DELETED or (
        value is not None and session.executor.is_deleted(value)
    )


def serve_destruct_array(session: Session, request: Proto, reply: Reply) -> None:
    """Forgets handles; memory that nothing else shares is freed."""
    reply.unnumbered = True
    missing = session.arrays.remove(request.array_handle)
    if missing:
        raise invalid_argument(f"unknown array handles {missing}")


def shard_specs(spec: ArraySpec) -> list[ArraySpec]:
    """The spec of each shard."""
    sharding = spec.sharding
    shapes = sharding.shard_shapes_of(spec.shape)
    return [
        ArraySpec(spec.dtype, shape, single_device_sharding(device, sharding.memory_kind))
        for device, shape in zip(sharding.devices, shapes, strict=True)
    ]


HANDLERS = {
    "assemble_array_from_single_device_arrays_request": Handler(
        serve_assemble, results=result_handle
    ),
    "disassemble_into_single_device_arrays_request": Handler(
        serve_disassemble, results=result_handles
    ),
    "fully_replicated_shard_request": Handler(serve_fully_replicated_shard, results=result_handle),
    "remap_arrays_request": Handler(serve_remap_arrays, results=result_handles),
    "copy_arrays_request": Handler(serve_copy_arrays, results=result_handles),
    "reshard_arrays_request": Handler(serve_reshard_arrays, results=result_handles),
    "bitcast_arrays_request": Handler(serve_bitcast_arrays, results=result_handles),
    "delete_array_request": Handler(serve_delete_array),
    "is_array_deleted_request": Handler(serve_is_array_deleted),
    "destruct_array_request": Handler(serve_destruct_array),
}
