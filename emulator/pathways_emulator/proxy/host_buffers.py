# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Bytes on their way between the client's host memory and arrays.

They travel on calls of their own, beside the session's stream, so a request may name a buffer that
has not arrived yet.
"""

import threading
from collections.abc import Callable, Iterable

type Buffer = bytes | bytearray | memoryview


class HostBufferStore:
    """Buffers of one session, by handle. Thread-safe.

    Args:
        on_store: Called after each buffer that arrived, outside any lock.
    """

    def __init__(self, on_store: Callable[[], None]) -> None:
        self._lock = threading.Lock()
        self._buffers: dict[int, Buffer] = {}
        self._on_store = on_store
        self._closed = False

    def __len__(self) -> int:
        return len(self._buffers)

    def store(self, handle: int, data: Buffer) -> None:
        """Keeps what the client sent, and lets the request that waits for it go on."""
        self.keep(handle, data)
        self._on_store()

    def keep(self, handle: int, data: Buffer) -> None:
        """Keeps what the client will fetch."""
        with self._lock:
            if not self._closed:
                self._buffers[handle] = data

    def get(self, handle: int) -> Buffer | None:
        """A buffer, or None if it has not arrived or is gone."""
        return self._buffers.get(handle)

    def delete(self, handle: int) -> bool:
        """Forgets a buffer; False if there was none."""
        return self._buffers.pop(handle, None) is not None

    def delete_all(self, handles: Iterable[int]) -> None:
        """Forgets buffers, whether or not they are there."""
        for handle in handles:
            self.delete(handle)

    def close(self) -> None:
        """Forgets all, and keeps none that still arrive."""
        with self._lock:
            self._closed = True
            self._buffers.clear()
