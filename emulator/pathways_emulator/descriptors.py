# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Protobuf message classes, made from the descriptors that jaxlib carries in its library.

jaxlib's C++ library embeds, as serialized ``FileDescriptorProto``s, the schema of every message it
speaks. Reading them there means that our messages always match the installed jaxlib, and that there
is no ``.proto`` file to keep in step with it.
"""

import mmap
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jaxlib
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError

# Messages whose fields exist only at run time: mypy can't know them, so this is the one place where
# the emulator gives up static types for them.
type Proto = Any
type ProtoClass = Any

_SUFFIX = b".proto"
_NAME_TAG = 0x0A  # field 1 of FileDescriptorProto, length-delimited: the file's name

# Fields of FileDescriptorProto by wire type, to find where a serialized one ends.
_LENGTH_DELIMITED_FIELDS = frozenset({1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15})
_VARINT_FIELDS = frozenset({10, 11, 14})

# What the proxy speaks; their dependencies come along.
ROOTS = (
    "xla/python/ifrt_proxy/common/grpc_ifrt_service.proto",
    "xla/python/ifrt/sharding_serdes.proto",
    "xla/python/pjrt_ifrt/xla_sharding.proto",
    "xla/python/pjrt_ifrt/xla_compiler.proto",
)


class DescriptorError(RuntimeError):
    """The library has no usable descriptor of a file or message; the message names it."""


class Messages:
    """Message classes by full name, such as ``xla.ifrt.proxy.IfrtRequest``.

    All classes are made at once and kept. protobuf makes the classes of fields when a message is
    parsed and keeps no hold on them: once the garbage collector had taken one, parsing the next
    message ended the process.

    Args:
        pool: Has the files.
        files: Names of the files whose messages are wanted.
    """

    def __init__(self, pool: descriptor_pool.DescriptorPool, files: Iterable[str]) -> None:
        self._pool = pool
        self._classes: dict[str, ProtoClass] = {}
        for name in files:
            for descriptor in pool.FindFileByName(name).message_types_by_name.values():
                self._keep(descriptor)

    def _keep(self, descriptor: Descriptor) -> None:
        self._classes[descriptor.full_name] = message_factory.GetMessageClass(descriptor)
        for nested in descriptor.nested_types:
            self._keep(nested)

    def __getitem__(self, full_name: str) -> ProtoClass:
        """The class of one message.

        Raises:
            DescriptorError: The descriptors have no such message.
        """
        try:
            return self._classes[full_name]
        except KeyError:
            raise DescriptorError(
                f"jaxlib's descriptors have no message {full_name!r}; is this jaxlib "
                f"({jaxlib.version.__version__}) newer or older than the emulator supports?"
            ) from None


@cache
def messages() -> Messages:
    """The messages of the installed jaxlib. Costs about 0.2 s the first time.

    Raises:
        DescriptorError: jaxlib's library is missing or lacks one of ``ROOTS``.
    """
    library = Path(jaxlib.__file__).parent / "libjax_common.so"
    if not library.is_file():
        raise DescriptorError(f"jaxlib has no library {library}; reinstall jaxlib")
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return make_messages(scan(data), ROOTS)


def scan(data: mmap.mmap | bytes) -> dict[str, descriptor_pb2.FileDescriptorProto]:
    """Every file descriptor embedded in ``data``, by file name."""
    found: dict[str, descriptor_pb2.FileDescriptorProto] = {}
    position = data.find(_SUFFIX)
    while position >= 0:
        end = position + len(_SUFFIX)
        start = _start_of_name(data, end)
        if start is not None:
            file = _parse(data, start, data[start + 2 : end])
            if file is not None:
                found.setdefault(file.name, file)
        position = data.find(_SUFFIX, end)
    return found


def make_messages(
    files: Mapping[str, descriptor_pb2.FileDescriptorProto], roots: Iterable[str]
) -> Messages:
    """The messages of the files ``roots`` and of all they import.

    Raises:
        DescriptorError: One of them is not in ``files``.
    """
    pool = descriptor_pool.DescriptorPool()
    added: set[str] = set()

    def add(name: str) -> None:
        if name in added:
            return
        added.add(name)
        file = files.get(name)
        if file is None:
            raise DescriptorError(
                f"jaxlib's library has no descriptor of {name!r} ({len(files)} others found); "
                "the emulator needs jaxlib >= 0.12.0"
            )
        for dependency in file.dependency:
            add(dependency)
        pool.Add(file)

    for root in roots:
        add(root)
    return Messages(pool, added)


def _start_of_name(data: mmap.mmap | bytes, end: int) -> int | None:
    """Where a descriptor starts whose name ends at ``end``: a tag, the name's length, the name."""
    for length in range(len(_SUFFIX) + 1, 128):
        start = end - length - 2
        if start < 0:
            return None
        if data[start + 1] == length and data[start] == _NAME_TAG:
            return start
    return None


def _parse(
    data: mmap.mmap | bytes, start: int, name: bytes
) -> descriptor_pb2.FileDescriptorProto | None:
    try:
        file = descriptor_pb2.FileDescriptorProto.FromString(data[start : _end(data, start)])
    except DecodeError:
        return None
    has_content = file.message_type or file.enum_type or file.service or file.extension
    return file if has_content and file.name.encode() == name else None


def _end(data: mmap.mmap | bytes, start: int) -> int:
    """Where the descriptor at ``start`` ends: at the first bytes that can't be another field."""
    position = start
    while True:
        try:
            tag, value_at = _varint(data, position)
            field, wire_type = tag >> 3, tag & 7
            if field == 1 and position > start:
                return position
            if wire_type == 2 and field in _LENGTH_DELIMITED_FIELDS:
                length, value_at = _varint(data, value_at)
                following = value_at + length
            elif wire_type == 0 and field in _VARINT_FIELDS:
                _, following = _varint(data, value_at)
            else:
                return position
        except IndexError:
            return position
        if following > len(data):
            return position
        position = following


def _varint(data: mmap.mmap | bytes, position: int) -> tuple[int, int]:
    """The varint at ``position`` and the position after it."""
    value = shift = 0
    while shift < 64:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position += 1
        shift += 7
        if byte < 0x80:
            break
    return value, position
