# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""A client of the protocol on grpcio, for requests that JAX itself never sends."""

from collections.abc import Iterator
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self

import grpc

from pathways_emulator.descriptors import Proto, messages

_SERVICE = "/xla.ifrt.proxy.GrpcIfrtService/"
_PACKAGE = "xla.ifrt.proxy."


def message(name: str, **fields: Any) -> Proto:
    """A message of the proxy's package."""
    return messages()[_PACKAGE + name](**fields)


class RawClient:
    """One session."""

    def __init__(self, address: str) -> None:
        self.channel = grpc.insecure_channel(
            address,
            options=[
                ("grpc.max_receive_message_length", -1),
                ("grpc.use_local_subchannel_pool", 1),
            ],
        )
        self._requests: SimpleQueue[bytes | None] = SimpleQueue()
        self._replies: Any = None
        self._next_op = 1

    def unary(self, method: str, request: Proto) -> bytes:
        """One call with one request and one reply."""
        return self.unary_raw(method, request.SerializeToString())

    def unary_raw(self, method: str, request: bytes) -> bytes:
        """The same with whatever bytes."""
        call: Any = self.channel.unary_unary(_SERVICE + method)
        reply: bytes = call(request, timeout=30)
        return reply

    def store(
        self,
        session_id: int,
        handle: int,
        data: bytes,
        size: int | None = None,
        piece_size: int = 7,
    ) -> None:
        """Sends a host buffer in pieces, announcing another size if one is given."""
        metadata = message(
            "GrpcHostBufferStoreMetadata",
            session_id=session_id,
            handle=handle,
            buffer_size=len(data) if size is None else size,
        )
        pieces = [data[i : i + piece_size] for i in range(0, len(data), piece_size)]
        call: Any = self.channel.stream_unary(_SERVICE + "HostBufferStore")
        call(
            iter(
                message("GrpcHostBufferStoreRequest", data=piece).SerializeToString()
                for piece in pieces
            ),
            timeout=30,
            metadata=(
                (
                    "ifrt-proxy-grpc-host-buffer-store-metadata-bin",
                    metadata.SerializeToString(),
                ),
            ),
        )

    def lookup(self, session_id: int, handle: int) -> bytes:
        """Fetches a host buffer."""
        request = message("GrpcHostBufferLookupRequest", session_id=session_id, handle=handle)
        call: Any = self.channel.unary_stream(_SERVICE + "HostBufferLookup")
        pieces = call(request.SerializeToString(), timeout=60)
        response = messages()[_PACKAGE + "GrpcHostBufferLookupResponse"]
        return b"".join(response.FromString(piece).data for piece in pieces)

    def send(self, name: str, user: int = 0, **fields: Any) -> int:
        """Sends a request such as ``init_request``; returns its operation's id."""
        if self._replies is None:
            call: Any = self.channel.stream_stream(_SERVICE + "IfrtSession")
            self._replies = call(self._stream(), timeout=120)
        request = message("IfrtRequest")
        request.request_metadata.op_id = self._next_op
        request.request_metadata.user_context_id = user
        body = getattr(request, name)
        body.SetInParent()
        body.MergeFrom(type(body)(**fields))
        self._requests.put(request.SerializeToString())
        self._next_op += 1
        return self._next_op - 1

    def send_raw(self, request: bytes) -> None:
        """Sends whatever bytes on a session's stream that was begun by a request."""
        self._requests.put(request)

    def receive(self) -> Proto:
        """The next reply."""
        return messages()[_PACKAGE + "IfrtResponse"].FromString(next(self._replies))

    def ask(self, name: str, user: int = 0, **fields: Any) -> Proto:
        """Sends a request and returns its reply."""
        op_id = self.send(name, user, **fields)
        reply = self.receive()
        assert reply.response_metadata.op_id == op_id
        return reply

    def _stream(self) -> Iterator[bytes]:
        while (data := self._requests.get()) is not None:
            yield data

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._requests.put(None)
        self.channel.close()
