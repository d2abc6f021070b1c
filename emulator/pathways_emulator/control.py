# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Orders to a running `pathways-emulator serve`, over a socket in its private directory.

One request and one answer per connection, each a line of JSON. Whoever may open the socket is the
user who runs `serve`: nobody else can reach it in its directory.
"""

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

VARIABLE = "PATHWAYS_CONTROL_SOCKET"
"""Environment variable of a user of the instance: where `serve` listens."""

# Far more than a request has, for a client that is none of ours.
_MAX_REQUEST_BYTES = 1000
_REQUEST_TIMEOUT_S = 5.0
# For one answer; it holds the last words of a worker that did not come up.
_MAX_ANSWER_BYTES = 1 << 20


class ControlError(Exception):
    """An order could not be given, or was not followed; the message says why."""


async def listen(path: Path, revive: Callable[[int], Awaitable[str]]) -> asyncio.Server:
    """Serves orders until the result is closed.

    Args:
        path: Of the socket, in a directory that is private.
        revive: Starts the workers of a slice again; returns what happened, for people, or raises
            ControlError.

    Raises:
        OSError: The socket can't be made.
    """

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(OSError, TimeoutError):
            try:
                line = await asyncio.wait_for(reader.readline(), _REQUEST_TIMEOUT_S)
                reply = {"done": await revive(_slice_index(line))}
            # What a line without end raises, too.
            except (ControlError, ValueError) as error:
                reply = {"refused": str(error)}
            writer.write(json.dumps(reply).encode() + b"\n")
            await writer.drain()

    listener = socket.socket(socket.AF_UNIX)
    with _reachable(path) as name:
        listener.bind(name)
    path.chmod(0o600)
    return await asyncio.start_unix_server(answer, sock=listener, limit=_MAX_REQUEST_BYTES)


def ask_revive(path: Path, slice_index: int, timeout_s: float) -> str:
    """Has the workers of a slice started again; returns what happened, for people.

    Raises:
        ControlError: They were not, or `serve` is gone or does not answer in time.
    """
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(timeout_s)
            with _reachable(path) as name:
                connection.connect(name)
            connection.sendall(json.dumps({"revive": slice_index}).encode() + b"\n")
            with connection.makefile("rb") as answer:
                line = answer.readline(_MAX_ANSWER_BYTES)
    except TimeoutError:
        raise ControlError(f"`pathways-emulator serve` did not answer in {timeout_s:g} s") from None
    except OSError as error:
        raise ControlError(
            f"`pathways-emulator serve` can't be reached at {path} ({error.strerror}): it has "
            "ended, runs on another machine, or belongs to another user"
        ) from None
    if not line:
        raise ControlError("`pathways-emulator serve` ended before it had answered")
    reply: dict[str, str] = json.loads(line)
    if "refused" in reply:
        raise ControlError(reply["refused"])
    return reply["done"]


def _slice_index(line: bytes) -> int:
    try:
        index = json.loads(line)["revive"]
    except (ValueError, KeyError, TypeError):
        index = None
    # A bool is an int, too.
    if type(index) is not int:
        raise ControlError(f"not a request: {line!r}; expected {{'revive': SLICE}}")
    return index


@contextlib.contextmanager
def _reachable(path: Path) -> Iterator[str]:
    """A short name of a socket: its own may be longer than the 107 bytes an address can have."""
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
