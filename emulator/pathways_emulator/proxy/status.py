# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Errors as the client sees them.

Elastic programs (pathwaysutils, MaxText) decide by the text of an error whether a slice is gone:
``DATA_LOSS`` says yes, and ``INTERNAL``, ``NOT_FOUND`` and ``DEADLINE_EXCEEDED`` count as a yes
with a warning. So only a lost slice may say DATA_LOSS, and nothing may ever say the other three.
"""

import re
from dataclasses import dataclass
from enum import IntEnum

from google.protobuf.message import DecodeError
from jaxlib import xla_client

from pathways_emulator.descriptors import Proto


class Code(IntEnum):
    """The canonical codes of ``absl::Status`` that the proxy uses."""

    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


# What XLA may report for reasons of its own, but which would be taken for the loss of a slice.
_MISLEADING = re.compile(r"\b(DATA_LOSS|INTERNAL|NOT_FOUND|DEADLINE_EXCEEDED)\b")
_CODE_PREFIX = re.compile(r"^([A-Z_]+): ")


@dataclass(frozen=True, slots=True)
class Status:
    """An error as a value: it can be stored in place of an array."""

    code: Code
    message: str

    def write_to(self, proto: Proto) -> None:
        """Fills a ``tensorflow.StatusProto``."""
        proto.code = int(self.code)
        proto.message = self.message


class ProxyError(Exception):
    """A request that can't be served, for a reason its sender should read."""

    def __init__(self, status: Status) -> None:
        super().__init__(f"{status.code.name}: {status.message}")
        self.status = status


class NotYet(Exception):  # not an error: the request stays first in line
    """Raised by a handler that needs something that has not arrived; the session waits for it.

    The handler runs again from its start, so it must have changed nothing before.
    """


def invalid_argument(message: str) -> ProxyError:
    """The request contradicts itself or the state of its session."""
    return ProxyError(Status(Code.INVALID_ARGUMENT, message))


def unimplemented(message: str) -> ProxyError:
    """The emulator can't do this, and says so instead of guessing."""
    return ProxyError(Status(Code.UNIMPLEMENTED, message))


def status_of(error: BaseException) -> Status:
    """The status of any exception, never one that reads like the loss of a slice.

    XLA's errors keep their code if they may; everything else is UNKNOWN.
    """
    if isinstance(error, ProxyError):
        return error.status
    text = str(error) or type(error).__name__
    if isinstance(error, DecodeError):
        return Status(Code.INVALID_ARGUMENT, f"a malformed message: {harmless(text)}")
    if isinstance(error, xla_client.XlaRuntimeError):
        code = Code.UNKNOWN
        prefix = _CODE_PREFIX.match(text)
        if prefix:
            name = prefix.group(1)
            if name in Code.__members__ and name != Code.DATA_LOSS.name:
                code = Code[name]
            text = text[prefix.end() :]
        return Status(code, harmless(text))
    return Status(Code.UNKNOWN, f"{type(error).__name__}: {harmless(text)}")


def harmless(text: str) -> str:
    """``text`` without words that would be taken for the loss of a slice."""
    return _MISLEADING.sub(lambda word: word.group().lower(), text)
