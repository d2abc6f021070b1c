# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Which of many TCP addresses answer, asked all at once.

To accept a connection proves little: the kernel does so for a process that is stopped or hangs. A
process that lives says something. A gRPC server speaks HTTP/2, in which each side opens with its
SETTINGS (RFC 9113, section 3.4), and the emulator's workers greet whoever connects; so to all of
them goes the opening of an HTTP/2 client, and any byte that comes back is an answer.
"""

import errno
import selectors
import socket
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from types import TracebackType
from typing import Self

Endpoint = tuple[str, int]

# The connection preface, and a SETTINGS frame that sets nothing: length 0, type 4, stream 0.
_OPENING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"

# A connection that is kept has to notice by itself that its other end is gone.
_KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 2),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 10_000),
)


class Proof(Enum):
    """What counts as an answer."""

    CONNECTS = auto()
    """The connection is accepted: for a program of which it is not known what it says."""
    SPEAKS = auto()
    """Something is said on it."""


def parse_endpoint(text: str) -> Endpoint:
    """Reads ``HOST:PORT``. Raises ValueError if it is none."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal():
        raise ValueError(f"{text!r} is not of the form HOST:PORT")
    return host, int(port)


def answering(
    endpoints: Iterable[Endpoint], timeout_s: float = 1.0, proof: Proof = Proof.SPEAKS
) -> frozenset[Endpoint]:
    """Asks once; see :meth:`Prober.ask`."""
    with Prober(timeout_s) as prober:
        return prober.ask(dict.fromkeys(endpoints, proof))


@dataclass(slots=True)
class _Question:
    """A connection on which an answer is awaited. ``asked``: it is made, and the opening sent."""

    connection: socket.socket
    endpoint: Endpoint
    proof: Proof
    asked: bool = False

    def begin(self) -> bool:
        """Has the connection made; False if it can't be."""
        self.connection.setblocking(False)
        for level, option, value in _KEEPALIVE:
            self.connection.setsockopt(level, option, value)
        try:
            return self.connection.connect_ex(self.endpoint) in (0, errno.EINPROGRESS)
        except OSError:  # the name does not resolve
            return False

    def advance(self) -> bool | None:
        """Reads what there is: True if that is an answer, None if one may still come."""
        try:
            if not self.asked:
                if self.connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0:
                    return False
                if self.proof is Proof.CONNECTS:
                    return True
                self.connection.send(_OPENING)
                self.asked = True
            return bool(self.connection.recv(4096))
        except BlockingIOError:
            return None
        except OSError:
            return False


class Prober:
    """Asks the same endpoints again and again. A context: it holds connections in between.

    One that was accepted and then got no answer is kept and waited on at the next time. So a
    process that is stopped for hours has one of ours in its queue and not thousands, which would
    fill it; and it costs its time-out once, not at every look.
    """

    def __init__(self, timeout_s: float = 1.0) -> None:
        """``timeout_s``: for all the answers to one call together, in seconds."""
        self._timeout_s = timeout_s
        self._open: dict[Endpoint, _Question] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for endpoint in tuple(self._open):
            self._close(endpoint)

    def ask(self, endpoints: Mapping[Endpoint, Proof]) -> frozenset[Endpoint]:
        """The endpoints that answer within the time-out, or have since the last call.

        All are asked at the same time, so a hundred silent hosts cost one time-out, not a hundred.
        A host name that does not resolve does not answer.

        Args:
            endpoints: (host, port) → what counts as its answer.
        """
        answered: set[Endpoint] = set()
        for endpoint in self._open.keys() - endpoints.keys():
            self._close(endpoint)
        for endpoint, question in tuple(self._open.items()):
            # One that was waited for in vain is not waited for again. If its connection broke, a
            # new one may do better.
            if (answer := question.advance()) is not None:
                self._close(endpoint)
            if answer:
                answered.add(endpoint)
        with selectors.DefaultSelector() as selector:
            for endpoint in endpoints.keys() - self._open.keys() - answered:
                self._begin(selector, endpoint, endpoints[endpoint])
            answered |= self._wait(selector)
        for endpoint, question in tuple(self._open.items()):
            # One that was not even accepted leaves nothing behind, and is tried anew.
            if not question.asked:
                self._close(endpoint)
        return frozenset(answered)

    def _begin(self, selector: selectors.BaseSelector, endpoint: Endpoint, proof: Proof) -> None:
        connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        question = self._open[endpoint] = _Question(connection, endpoint, proof)
        if question.begin():
            selector.register(connection, selectors.EVENT_WRITE, question)
        else:
            self._close(endpoint)

    def _wait(self, selector: selectors.BaseSelector) -> set[Endpoint]:
        answered = set()
        deadline = time.monotonic() + self._timeout_s
        while selector.get_map() and (left := deadline - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                question: _Question = key.data
                answer = question.advance()
                if answer is None:
                    selector.modify(key.fileobj, selectors.EVENT_READ, question)
                    continue
                selector.unregister(key.fileobj)
                self._close(question.endpoint)
                if answer:
                    answered.add(question.endpoint)
        return answered

    def _close(self, endpoint: Endpoint) -> None:
        self._open.pop(endpoint).connection.close()
