# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The arrays of one session: handle → data, or the error that took its place."""

import threading
from collections.abc import Callable, Iterable, Sequence

from pathways_emulator.proxy.executor import ArraySpec, Value
from pathways_emulator.proxy.health import Health
from pathways_emulator.proxy.status import Code, Status, invalid_argument

type Incarnations = tuple[tuple[int, int], ...]
type IsReady = Callable[[Value], bool]

# What an array is after it was donated.
DELETED = Status(Code.INVALID_ARGUMENT, "the array was donated and can't be used any more")


class Array:
    """One array.

    Attributes:
        spec: None if even that is unknown: the request that should have made the array failed.
        value: The data; None once ``error`` is set.
        error: What whoever needs the data gets instead.
        incarnations: (slice, incarnation) of every slice the array lies on.
        origin: The same of every slice whose work it needs until it is computed: a shard on a good
            slice never comes if the computation that makes it spans one that is lost.
    """

    __slots__ = ("error", "incarnations", "origin", "spec", "value")

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
        self.incarnations = incarnations
        self.origin = incarnations if origin is None else origin
        self.error = error

    def fail(self, error: Status) -> None:
        """Replaces the data by an error; the first error stays."""
        if self.error is None:
            self.error = error
        self.value = None

    def apply(self, health: Health, is_ready: IsReady) -> None:
        """Becomes an error if its data, or the work it still needs, is lost."""
        if self.error is not None:
            return
        loss = health.loss_of(self.incarnations)
        if loss is None and self.origin is not self.incarnations:
            loss = health.loss_of(self.origin)
            if loss is not None and is_ready(self.value):
                self.origin = self.incarnations
                return
        if loss is not None:
            self.fail(loss)


def error_array(error: Status, spec: ArraySpec | None = None) -> Array:
    """An array that is an error from the start."""
    return Array(spec, None, (), error=error)


def origin_of(own: Incarnations, sources: Iterable[Array], is_ready: IsReady) -> Incarnations:
    """Whose work a result on the slices ``own`` needs, if it is made of ``sources``."""
    more: dict[tuple[int, int], None] = {}
    for source in sources:
        if source.origin != own and not is_ready(source.value):
            more.update(dict.fromkeys(pair for pair in source.origin if pair not in own))
    return (*own, *more) if more else own


class ArrayStore:
    """Arrays by handle. Thread-safe.

    The health of the slices changes under the same lock, so that no array of a lost slice slips in
    between a check and an insertion.
    """

    # Handles below are the client's to choose, those from here on the server's.
    FIRST_SERVER_HANDLE = 1 << 62

    def __init__(self, health: Health, is_ready: IsReady) -> None:
        self._is_ready = is_ready
        self._lock = threading.Lock()
        self._arrays: dict[int, Array] = {}
        self._next_handle = self.FIRST_SERVER_HANDLE
        self._health = health

    def __len__(self) -> int:
        return len(self._arrays)

    @property
    def health(self) -> Health:
        """The health that arrays made from now on must be given incarnations of."""
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
        """
        array = self._arrays.get(handle)
        if array is None:
            raise invalid_argument(f"unknown array handle {handle}")
        return array

    def get_all(self, handles: Sequence[int]) -> list[Array]:
        """The arrays behind handles.

        Raises:
            ProxyError: INVALID_ARGUMENT, if one is unknown.
        """
        try:
            return [self._arrays[handle] for handle in handles]
        except KeyError as error:
            raise invalid_argument(f"unknown array handle {error.args[0]}") from None

    def remove(self, handles: Iterable[int]) -> list[int]:
        """Forgets arrays; returns the handles that were unknown."""
        with self._lock:
            return [handle for handle in handles if self._arrays.pop(handle, None) is None]

    def on_health(self, health: Health) -> None:
        """Turns the arrays of slices that are lost in ``health`` into errors, freeing memory."""
        with self._lock:
            self._health = health
            for array in self._arrays.values():
                array.apply(health, self._is_ready)

    def clear(self) -> None:
        """Forgets everything."""
        with self._lock:
            self._arrays.clear()
