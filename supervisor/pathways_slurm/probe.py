# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Which of many TCP addresses accept a connection, asked all at once."""

import contextlib
import errno
import selectors
import socket
import time
from collections.abc import Iterable

Endpoint = tuple[str, int]


def parse_endpoint(text: str) -> Endpoint:
    """Reads ``HOST:PORT``. Raises ValueError if it is none."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal():
        raise ValueError(f"{text!r} is not of the form HOST:PORT")
    return host, int(port)


def answering(endpoints: Iterable[Endpoint], timeout_s: float = 1.0) -> frozenset[Endpoint]:
    """The endpoints (host, port) that accept a TCP connection within ``timeout_s`` seconds.

    All are tried at the same time, so a hundred silent hosts cost one time-out, not a hundred.
    A host name that does not resolve does not answer.
    """
    found: set[Endpoint] = set()
    with selectors.DefaultSelector() as selector, contextlib.ExitStack() as stack:
        for endpoint in set(endpoints):
            connection = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            connection.setblocking(False)
            try:
                code = connection.connect_ex(endpoint)
            except OSError:  # the name does not resolve
                continue
            if code == 0:
                found.add(endpoint)
            elif code == errno.EINPROGRESS:
                selector.register(connection, selectors.EVENT_WRITE, endpoint)
        deadline = time.monotonic() + timeout_s
        while selector.get_map() and (left := deadline - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                connection = key.fileobj  # type: ignore[assignment]  # we registered sockets only
                if connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
                    found.add(key.data)
                selector.unregister(connection)
    return frozenset(found)
