# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""One file with host arrays, which says what is in it and shows when it has been damaged.

::

    magic │ length of the header (8 bytes) │ header (JSON) │ padding │ data │ padding │ data …

Every piece of data has a checksum in the header. Whoever wrote the file remembers the header's own
checksum, so that no other file, however whole, is taken for it.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from math import prod
from typing import IO, Any, Final

import numpy as np

from pathways_emulator.proxy.dtypes import DType, dtype_named
from pathways_emulator.proxy.executor import HostArray
from pathways_emulator.proxy.scratch import Chunk, Scratch, in_pieces
from pathways_emulator.proxy.shardings import Shape

MAGIC: Final = b"pathways-emulator shards 1\n"
_LENGTH_BYTES = 8
_DIGEST_BYTES = 32

# XLA takes host memory as its own, without a copy, only if it is aligned so.
_ALIGNMENT = 64


class DamagedError(Exception):
    """A file is not what was written; the message says how."""


@dataclass(frozen=True, slots=True)
class Piece:
    """An array to be written.

    Attributes:
        dtype: Of the elements.
        shape: Of the array.
        host: Gives the data; called more than once.
    """

    dtype: DType
    shape: Shape
    host: Callable[[], HostArray]


@dataclass(frozen=True, slots=True)
class ShardFile:
    """A file that was written.

    Attributes:
        name: In the scratch location.
        digest: Of the header.
    """

    name: str
    digest: bytes


def write(
    scratch: Scratch,
    name: str,
    about: Mapping[str, Any],
    pieces: Sequence[Piece],
    check: Callable[[], None],
) -> ShardFile:
    """Writes a file.

    Args:
        scratch: Where.
        name: Of the file.
        about: What else the header says, for a human or another program.
        pieces: The data.
        check: Called often; what it raises ends the work.
    """
    entries = []
    offset = 0
    for piece in pieces:
        data = _bytes_of(piece.host())
        entries.append(
            {
                "dtype": piece.dtype.name,
                "shape": list(piece.shape),
                "offset": offset,
                "bytes": len(data),
                "blake2b": _digest(in_pieces(data, check)).hex(),
            }
        )
        offset = _aligned(offset + len(data))
    header = json.dumps({**about, "shards": entries}).encode()

    def chunks() -> Iterable[Chunk]:
        start = MAGIC + len(header).to_bytes(_LENGTH_BYTES) + header
        yield start + bytes(_aligned(len(start)) - len(start))
        for piece in pieces:
            data = _bytes_of(piece.host())
            yield from in_pieces(data, check)
            yield bytes(_aligned(len(data)) - len(data))

    scratch.write(name, chunks())
    return ShardFile(name, _digest([header]))


def read(
    scratch: Scratch, file: ShardFile, wanted: Collection[int], check: Callable[[], None]
) -> dict[int, HostArray]:
    """Reads some of the arrays of a file, by their place among its pieces.

    Raises:
        DamagedError: The file is gone, or not as it was written.
        Exception: What ``check`` raises.
    """
    try:
        with scratch.open(file.name) as stream:
            entries, start = _header(stream, file.digest)
            return {
                place: _read_piece(stream, start, entries[place], place, check)
                for place in sorted(wanted)
            }
    except OSError as error:
        raise DamagedError(f"can't be read: {error.strerror or error}") from error


def _header(stream: IO[bytes], digest: bytes) -> tuple[list[dict[str, Any]], int]:
    start = stream.read(len(MAGIC) + _LENGTH_BYTES)
    length = int.from_bytes(start[len(MAGIC) :])
    # A damaged length must not become a huge read: the header's digest would not fit it anyway.
    header = b"" if not start.startswith(MAGIC) else _read_at_most(stream, length)
    if len(header) != length or _digest([header]) != digest:
        raise DamagedError("its header is not the one that was written")
    entries: list[dict[str, Any]] = json.loads(header)["shards"]
    return entries, _aligned(len(start) + length)


def _read_piece(
    stream: IO[bytes], start: int, entry: Mapping[str, Any], place: int, check: Callable[[], None]
) -> HostArray:
    dtype, shape = dtype_named(entry["dtype"]), tuple(entry["shape"])
    data = _aligned_memory(entry["bytes"])
    stream.seek(start + entry["offset"])
    digest = blake2b(digest_size=_DIGEST_BYTES)
    for piece in in_pieces(memoryview(data), check):
        content = stream.read(len(piece))
        if len(content) != len(piece):
            raise DamagedError(f"it ends in the middle of shard {place}")
        digest.update(content)
        memoryview(piece)[:] = content
    if digest.hexdigest() != entry["blake2b"]:
        raise DamagedError(f"the checksum of shard {place} is wrong")
    if len(data) != prod(shape) * dtype.numpy.itemsize:
        raise DamagedError(f"shard {place} of shape {shape} has {len(data)} bytes")
    host: HostArray = data.view(dtype.numpy).reshape(shape)
    return host


def _read_at_most(stream: IO[bytes], length: int) -> bytes:
    content = bytearray()
    while len(content) < length and (piece := stream.read(min(length - len(content), 1 << 20))):
        content += piece
    return bytes(content)


def _bytes_of(host: HostArray) -> memoryview:
    # Without a copy if it is dense already.
    return memoryview(np.asarray(host, order="C").reshape(-1).view(np.uint8))


def _aligned_memory(size: int) -> "np.ndarray[Any, np.dtype[np.uint8]]":
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    skip = -memory.ctypes.data % _ALIGNMENT
    return memory[skip : skip + size]


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGNMENT) * _ALIGNMENT


def _digest(chunks: Iterable[Chunk]) -> bytes:
    digest = blake2b(digest_size=_DIGEST_BYTES)
    for chunk in chunks:
        digest.update(chunk)
    return digest.digest()
