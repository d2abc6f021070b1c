# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What handlers that make arrays have in common: inputs, results, and errors in either."""

from collections.abc import Callable, Iterable, Sequence

from pathways_emulator.descriptors import Proto
from pathways_emulator.proxy.arrays import (
    DELETED,
    Array,
    error_array,
    first_error,
    origin_of,
    values_of,
)
from pathways_emulator.proxy.dtypes import DType, dtype_of_kind
from pathways_emulator.proxy.executor import ArraySpec, CopySemantics, Value
from pathways_emulator.proxy.health import Health
from pathways_emulator.proxy.session import Session
from pathways_emulator.proxy.shardings import Sharding, read_sharding
from pathways_emulator.proxy.status import invalid_argument


def derive(
    session: Session,
    handles: Sequence[int],
    specs: Sequence[ArraySpec],
    sources: Sequence[Array],
    compute: Callable[[list[Value]], Sequence[Value]],
) -> list[int]:
    """Makes arrays of others and stores them.

    An error in a source is the error of all results, and a result on a dead slice is an error, as
    on a real runtime: the request itself succeeds.

    Args:
        session: Owns all of them.
        handles: The client's choice for the results; empty lets the server choose.
        specs: Of the results.
        sources: What they are made of.
        compute: From the sources' data to that of the results; not called if there would be none.

    Returns:
        The handles of the results.
    """
    # Taken before the data, so that data which is lost meanwhile is not taken for new.
    health = session.arrays.health
    error = first_error(sources)
    if error is not None:
        results = [error_array(error, spec) for spec in specs]
    else:
        results = [new_array(session, health, spec) for spec in specs]
        if any(array.error is None for array in results):
            values = compute(values_of(sources))
            is_ready = session.executor.is_ready
            for array, value in zip(results, values, strict=True):
                if array.error is None:
                    array.value = value
                    array.origin = origin_of(array.incarnations, sources, is_ready)
    return store(session, handles, results)


def store(session: Session, handles: Sequence[int], arrays: Sequence[Array]) -> list[int]:
    """Stores arrays under the client's handles, or new ones if it gave none."""
    chosen = list(handles) or session.arrays.new_handles(len(arrays))
    if len(chosen) != len(arrays):
        raise invalid_argument(f"{len(chosen)} result handles for {len(arrays)} results")
    session.arrays.insert(chosen, arrays)
    return chosen


def new_array(session: Session, health: Health, spec: ArraySpec) -> Array:
    """An array that still lacks its data, or is an error if one of its slices is dead."""
    slices = session.slices_of(spec.sharding.devices)
    error = health.error_of(slices)
    if error is not None:
        return error_array(error, spec)
    return Array(spec, None, health.incarnations(slices))


def given(handle: int) -> tuple[int, ...]:
    """A single handle of the client's choice, where 0 means that it chose none."""
    return (handle,) if handle else ()


def read_spec(proto: Proto) -> ArraySpec:
    """Reads an ``xla.ifrt.ArraySpecProto``."""
    return ArraySpec(
        dtype_of_kind(proto.dtype.kind), tuple(proto.shape.dims), read_sharding(proto.sharding)
    )


def spec_of(array: Array) -> ArraySpec:
    """The spec of a source.

    Raises:
        ProxyError: The array's own error, if nothing is known of it.
    """
    if array.spec is None:
        values_of([array])
        raise invalid_argument("an array without a shape")
    return array.spec


def respec(spec: ArraySpec, sharding: Sharding, dtype: DType | None = None) -> ArraySpec:
    """The same array, lying differently."""
    return ArraySpec(dtype or spec.dtype, spec.shape, sharding)


def end_donated(sources: Iterable[Array], semantics: CopySemantics) -> None:
    """What was given away is gone, as on a TPU, even where the CPU runtime made a copy.

    Its memory may be that of the result, so it is forgotten and not freed.
    """
    if semantics is CopySemantics.DONATE_INPUT:
        for source in sources:
            source.fail(DELETED)


def semantics_of(request: Proto) -> CopySemantics:
    """What the request says of its inputs' fate."""
    return CopySemantics(request.copy_semantics)


def result_handle(request: Proto) -> Iterable[int]:
    """Of requests with one result."""
    return given(request.result_handle)


def result_handles(request: Proto) -> Iterable[int]:
    """Of requests with several results."""
    handles: Iterable[int] = request.result_handles
    return handles


def array_handles(request: Proto) -> Iterable[int]:
    """Of requests that call their results so."""
    handles: Iterable[int] = request.array_handles
    return handles
