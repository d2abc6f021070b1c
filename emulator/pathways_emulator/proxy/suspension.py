# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The data of one session on one slice: out of memory into a file, and back."""

import base64
import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pathways_emulator.proxy import shard_file
from pathways_emulator.proxy.arrays import Array, Away, Parts, fail_if_failed
from pathways_emulator.proxy.executor import ArraySpec, Executor, HostArray, Value
from pathways_emulator.proxy.scratch import Scratch
from pathways_emulator.proxy.shard_file import Piece, ShardFile
from pathways_emulator.proxy.shardings import single_device_sharding

# The kind of memory that a device computes with.
_OWN_MEMORY = "device"


class UnsavedError(Exception):
    """The data can't be saved; the message says why."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """What leaves memory when a slice is suspended.

    Attributes:
        parts: What is left of each array that lies on the slice.
        pieces: The data, once for all shards that share it.
        about: Each of these arrays, for the file's header.
    """

    parts: dict[Array, Parts] = field(default_factory=dict)
    pieces: list[Piece] = field(default_factory=list)
    about: list[dict[str, Any]] = field(default_factory=list)


def survey(
    arrays: Iterable[Array], index: int, devices: Collection[int], executor: Executor
) -> Outgoing:
    """Finds the shards of a slice among arrays that are computed.

    Those whose computation failed become errors. What was deleted stays as it is, and so do tokens:
    they have no data.

    Args:
        arrays: Of one session; all that need the slice.
        index: Of the slice.
        devices: Of the slice.
        executor: Has the data.

    Raises:
        UnsavedError: Some of it could not be restored.
    """
    result = Outgoing()
    known: dict[object, int] = {}
    for array in arrays:
        if array.parts is None:
            fail_if_failed(array, executor)
        parts = _parts_of(array, executor)
        spec = array.spec
        if parts is None or spec is None or not array.lies_on(index):
            continue
        kind = spec.sharding.memory_kind
        rest: list[Value | Away] = []
        for device, part in zip(spec.sharding.devices, parts, strict=True):
            if device not in devices or executor.is_deleted(part):
                rest.append(part)
                continue
            shape, layout = executor.shape(part), executor.layout(part)
            if layout is not None and kind not in (None, _OWN_MEMORY):
                raise UnsavedError(f"nothing restores layout {layout} in memory of kind {kind}")
            key = (executor.same_memory(part), spec.dtype.name, shape, layout)
            if key not in known:
                known[key] = len(result.pieces)
                result.pieces.append(Piece(spec.dtype, shape, partial(executor.to_host, part)))
            rest.append(Away(index, known[key], device, kind, layout))
        result.parts[array] = rest
        result.about.append(_describe(spec, rest, index))
    return result


def save(
    outgoing: Outgoing,
    scratch: Scratch,
    name: str,
    about: Mapping[str, Any],
    check: Callable[[], None],
) -> ShardFile:
    """Writes the file; see :func:`shard_file.write`."""
    return shard_file.write(
        scratch, name, {**about, "arrays": outgoing.about}, outgoing.pieces, check
    )


def load(
    arrays: Iterable[Array],
    index: int,
    scratch: Scratch,
    file: ShardFile,
    executor: Executor,
    check: Callable[[], None],
) -> dict[Away, Value]:
    """Reads what arrays still miss of a slice, and puts it on its devices.

    Raises:
        DamagedError: The file is gone, or not as it was written.
        Exception: What ``check`` raises.
    """
    missing = {
        part: array.spec
        for array in arrays
        for part in array.parts or ()
        if isinstance(part, Away) and part.slice_index == index and array.spec is not None
    }
    if not missing:
        return {}
    hosts = shard_file.read(scratch, file, {away.piece for away in missing}, check)
    return {away: _put(away, spec, hosts, executor) for away, spec in missing.items()}


def wait_for_end(value: Value, executor: Executor) -> None:
    """Waits until a value is computed, has failed, or was given away."""
    with contextlib.suppress(Exception):
        executor.wait(value)


def join(executor: Executor, spec: ArraySpec, parts: Parts) -> Value | None:
    """An array of its shards; None if one of them was deleted meanwhile."""
    if any(executor.is_deleted(part) for part in parts):
        return None
    return executor.assemble(spec, parts)


def _put(away: Away, spec: ArraySpec, hosts: Mapping[int, HostArray], executor: Executor) -> Value:
    host = hosts[away.piece]
    sharding = single_device_sharding(away.device, away.memory_kind)
    one = ArraySpec(spec.dtype, host.shape, sharding)
    value = executor.put(one, [host])
    return value if away.layout is None else executor.relayout(value, one, away.layout)


def _parts_of(array: Array, executor: Executor) -> Parts | None:
    """The shards of an array that has data."""
    if array.error is not None or array.spec is None or array.spec.dtype.is_token:
        return None
    if array.parts is not None:
        return array.parts
    value = array.value
    return None if value is None or executor.is_deleted(value) else executor.shards(value)


def _describe(spec: ArraySpec, parts: Parts, index: int) -> dict[str, Any]:
    return {
        "dtype": spec.dtype.name,
        "shape": list(spec.shape),
        "sharding": {
            "type": spec.sharding.type_name,
            "data": base64.b64encode(spec.sharding.data).decode(),
        },
        "shards": {
            place: {"piece": part.piece, "device": part.device, "layout": part.layout}
            for place, part in enumerate(parts)
            if isinstance(part, Away) and part.slice_index == index
        },
    }
