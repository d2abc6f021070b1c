# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The arrays of one session: handle → data, or the error that took its place."""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pathways_emulator.proxy.executor import ArraySpec, Executor, Value
from pathways_emulator.proxy.health import Health
from pathways_emulator.proxy.status import (
    Code,
    NotYet,
    ProxyError,
    Status,
    invalid_argument,
    status_of,
)

type Incarnations = tuple[tuple[int, int], ...]
type IsReady = Callable[[Value], bool]

# What an array is after it was donated.
DELETED = Status(Code.INVALID_ARGUMENT, "the array was donated and can't be used any more")


@dataclass(frozen=True, slots=True)
class Away:
    """In the place of a shard that is in a file.

    Attributes:
        slice_index: Which slice's file.
        piece: Its place in that file.
        device: The shard's.
        memory_kind: On that device.
        layout: In that memory, as XLA spells it; None for the usual one.
    """

    slice_index: int
    piece: int
    device: int
    memory_kind: str | None
    layout: str | None


# An array's shards while some of them are away.
type Parts = Sequence[Value | Away]


class Array:
    """One array.

    Attributes:
        spec: None if even that is unknown: the request that should have made the array failed.
        value: The data; None once ``error`` is set, and while ``parts`` is. A loss comes from
            another thread at any time: whoever needs the data takes it once, and looks.
        parts: The shards of an array that lies on a suspended slice; None for every other array.
        error: What whoever needs the data gets instead.
        incarnations: (slice, incarnation) of every slice the array lies on.
        origin: The same of every slice whose work it needs until it is computed: a shard on a good
            slice never comes if the computation that makes it spans one that is lost.
    """

    __slots__ = ("error", "incarnations", "origin", "parts", "spec", "value")

    def __init__(
        self,
        spec: ArraySpec | None,
        value: Value | None,
        incarnations: Incarnations,
        origin: Incarnations | None = None,
        error: Status | None = None,
    ) -> None:
        self.spec = spec
        self.value = value
        self.parts: Parts | None = None
        self.incarnations = incarnations
        self.origin = incarnations if origin is None else origin
        self.error = error

    def fail(self, error: Status) -> None:
        """Replaces the data by an error; the first error stays."""
        if self.error is None:
            self.error = error
        self.value = None
        self.parts = None

    def lies_on(self, index: int) -> bool:
        """Whether some of its data is on a slice."""
        return any(own == index for own, _ in self.incarnations)

    def needs(self, index: int) -> bool:
        """Whether its data, or the work that it may still need, is on a slice."""
        return self.lies_on(index) or any(other == index for other, _ in self.origin)

    def move(self, index: int, incarnation: int) -> None:
        """Lies on a newer run of a slice from now on."""
        if self.lies_on(index):
            computed = self.origin is self.incarnations
            self.incarnations = _moved(self.incarnations, index, incarnation)
            self.origin = self.incarnations if computed else _moved(self.origin, index, incarnation)

    def apply(self, health: Health, is_ready: IsReady) -> None:
        """Becomes an error if its data, or the work it still needs, is lost."""
        if self.error is not None:
            return
        loss = health.loss_of(self.incarnations)
        if loss is None and self.origin is not self.incarnations:
            loss = health.loss_of(self.origin)
            if loss is not None and self._is_computed(is_ready):
                self.origin = self.incarnations
                return
        if loss is not None:
            self.fail(loss)

    def _is_computed(self, is_ready: IsReady) -> bool:
        parts = self.parts
        there = (self.value,) if parts is None else parts
        return all(is_ready(part) for part in there if not isinstance(part, Away | None))


def _moved(incarnations: Incarnations, index: int, incarnation: int) -> Incarnations:
    return tuple((own, incarnation if own == index else old) for own, old in incarnations)


def error_array(error: Status, spec: ArraySpec | None = None) -> Array:
    """An array that is an error from the start."""
    return Array(spec, None, (), error=error)


def origin_of(own: Incarnations, sources: Iterable[Array], is_ready: IsReady) -> Incarnations:
    """Whose work a result on the slices ``own`` needs, if it is made of ``sources``."""
    more: dict[tuple[int, int], None] = {}
    for source in sources:
        value = source.value
        if source.origin != own and (value is None or not is_ready(value)):
            more.update(dict.fromkeys(pair for pair in source.origin if pair not in own))
    return (*own, *more) if more else own


def first_error(arrays: Iterable[Array]) -> Status | None:
    """The first error among arrays."""
    for array in arrays:
        if array.error is not None:
            return array.error
    return None


def fail_if_failed(array: Array, executor: Executor) -> None:
    """Keeps of an array whose computation failed its error only; waits for it."""
    value = array.value
    if value is None or executor.is_deleted(value):
        return
    try:
        executor.wait(value)
    except Exception as error:
        array.fail(status_of(error))


def values_of(arrays: Iterable[Array]) -> list[Value]:
    """The data of arrays.

    Raises:
        ProxyError: With the error of the first that has one.
    """
    values = []
    for array in arrays:
        # In this order: a loss sets the error first, from another thread.
        value = array.value
        if array.error is not None:
            raise ProxyError(array.error)
        values.append(value)
    return values


class ArrayStore:
    """Arrays by handle. Thread-safe.

    The health of the slices changes under the same lock, so that no array of a lost slice slips in
    between a check and an insertion. A slice whose data is in files is held only as long as one of
    these arrays has a part there; see :meth:`Health.for_owner_of`.
    """

    # Handles below are the client's to choose, those from here on the server's.
    FIRST_SERVER_HANDLE = 1 << 62

    def __init__(self, health: Health, is_ready: IsReady) -> None:
        self._is_ready = is_ready
        self._lock = threading.Lock()
        self._arrays: dict[int, Array] = {}
        self._next_handle = self.FIRST_SERVER_HANDLE
        self._see(health)

    def __len__(self) -> int:
        return len(self._arrays)

    @property
    def health(self) -> Health:
        """The health that arrays made from now on must be given incarnations of; as seen here."""
        return self._health

    def new_handles(self, count: int) -> list[int]:
        """Handles that nothing has yet."""
        with self._lock:
            first = self._next_handle
            self._next_handle += count
        return list(range(first, first + count))

    def insert(self, handles: Iterable[int], arrays: Iterable[Array]) -> None:
        """Stores arrays; those whose slices were lost since they were begun become errors."""
        with self._lock:
            health = self._health
            for handle, array in zip(handles, arrays, strict=True):
                array.apply(health, self._is_ready)
                self._arrays[handle] = array

    def get(self, handle: int) -> Array:
        """The array behind a handle, be it an error or not.

        Raises:
            ProxyError: INVALID_ARGUMENT, if there is none.
            NotYet: It lies on a slice that is held.
        """
        return self.get_all([handle])[0]

    def get_all(self, handles: Sequence[int], slices: Sequence[int] = ()) -> list[Array]:
        """The arrays behind handles, for work on these slices and those that the arrays lie on.

        Raises:
            ProxyError: INVALID_ARGUMENT, if one is unknown.
            NotYet: One of the slices is held, and no error makes that work fail anyway.
        """
        try:
            arrays = [self._arrays[handle] for handle in handles]
        except KeyError as error:
            raise invalid_argument(f"unknown array handle {error.args[0]}") from None
        health = self._health
        if (
            health.held
            and health.dead(slices) is None
            and all(array.error is None for array in arrays)
            and not health.held.isdisjoint(
                (*slices, *(index for array in arrays for index, _ in array.incarnations))
            )
        ):
            raise NotYet
        return arrays

    def remove(self, handles: Iterable[int]) -> list[int]:
        """Forgets arrays; returns the handles that were unknown."""
        with self._lock:
            removed = [(handle, self._arrays.pop(handle, None)) for handle in handles]
            if any(array is not None and array.parts is not None for _, array in removed):
                # It may have been the last one with a part in some file.
                self._see(self._shared)
        return [handle for handle, array in removed if array is None]

    def on_health(self, *steps: Health) -> None:
        """Turns the arrays of slices that are lost into errors, freeing memory.

        Args:
            *steps: Applied one after the other, as one; the last one stays.
        """
        with self._lock:
            for health in steps:
                self._see(health)

    def needing(self, index: int) -> list[Array]:
        """The arrays whose data counts and that need a slice."""
        with self._lock:
            return [
                array
                for array in self._arrays.values()
                if array.error is None and array.needs(index)
            ]

    def suspend(self, index: int, parts: Mapping[Array, Parts]) -> None:
        """Replaces the data of arrays by parts, and takes for computed what a slice worked on."""
        with self._lock:
            for array, some in parts.items():
                if array.error is None:
                    array.parts, array.value = some, None
            for array in self._arrays.values():
                if array.origin is not array.incarnations and array.needs(index):
                    array.origin = array.incarnations

    def restore(
        self,
        index: int,
        incarnation: int,
        shards: Mapping[Away, Value],
        join: Callable[[ArraySpec, Parts], Value | None],
        health: Health,
    ) -> None:
        """Puts shards back into the arrays of a slice.

        Args:
            index: Of the slice.
            incarnation: Its new one.
            shards: What was away; of every array but those that were forgotten since.
            join: Makes an array of its shards; None if one of them was deleted meanwhile.
            health: From now on.
        """
        with self._lock:
            for array in self._arrays.values():
                array.move(index, incarnation)
                if array.spec is None or array.parts is None:
                    continue
                parts = [
                    shards.get(part, part) if isinstance(part, Away) else part
                    for part in array.parts
                ]
                if any(isinstance(part, Away) for part in parts):
                    array.parts = parts
                    continue
                try:
                    value = join(array.spec, parts)
                except Exception as error:
                    array.fail(status_of(error))
                    continue
                if value is None:
                    array.fail(DELETED)
                else:
                    array.parts, array.value = None, value
            # Last: who sees it takes arrays without the lock.
            self._see(health)

    def clear(self) -> None:
        """Forgets everything."""
        with self._lock:
            self._arrays.clear()

    def _see(self, health: Health) -> None:
        """Goes on with a health, as it is for the owner of these arrays."""
        self._shared = health
        self._health = health.for_owner_of(self._saved_on(health))
        for array in self._arrays.values():
            array.apply(self._health, self._is_ready)

    def _saved_on(self, health: Health) -> set[int]:
        """The slices whose files have data that counts here."""
        return {
            part.slice_index
            for array in self._arrays.values()
            for part in array.parts or ()
            if isinstance(part, Away) and health.loss_of(array.incarnations) is None
        }
