# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""XLA's ``GrpcIfrtService`` on grpcio: from calls to sessions and back."""

import contextlib
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue

import grpc
from google.protobuf.message import DecodeError

from pathways_emulator.descriptors import Proto, ProtoClass, messages
from pathways_emulator.proxy.registry import SessionRegistry
from pathways_emulator.proxy.session import Session
from pathways_emulator.proxy.status import Code, Status
from pathways_emulator.proxy.versions import PROTOCOLS, SERDES, Range, choose

_log = logging.getLogger(__name__)

SERVICE = "xla.ifrt.proxy.GrpcIfrtService"
_STORE_METADATA_KEY = "ifrt-proxy-grpc-host-buffer-store-metadata-bin"

# The client names a file it wrote by this directory, which both sides are given in the environment.
_LARGE_TRANSFER_DIRECTORY = "IFRT_PROXY_GRPC_LARGE_TRANSFER_OPTIMIZATION_DIRECTORY"

_CHUNK = 1 << 20

type _Context = grpc.ServicerContext


class IfrtService:
    """One method per call of the service. Messages come and go serialized."""

    def __init__(self, sessions: SessionRegistry) -> None:
        self._sessions = sessions
        package = "xla.ifrt.proxy."
        self._version_request = messages()[package + "GrpcGetVersionRequest"]
        self._version_response = messages()[package + "GrpcGetVersionResponse"]
        self._store_metadata = messages()[package + "GrpcHostBufferStoreMetadata"]
        self._store_request = messages()[package + "GrpcHostBufferStoreRequest"]
        self._lookup_request = messages()[package + "GrpcHostBufferLookupRequest"]
        self._lookup_response = messages()[package + "GrpcHostBufferLookupResponse"]
        self._delete_request = messages()[package + "GrpcHostBufferDeleteRequest"]
        self._disk_request = messages()[package + "GrpcHostBufferReadFromDiskRequest"]

    def handler(self) -> grpc.GenericRpcHandler:
        """For ``grpc.Server.add_generic_rpc_handlers``."""
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "GetVersion": grpc.unary_unary_rpc_method_handler(self.get_version),
                "IfrtSession": grpc.stream_stream_rpc_method_handler(self.ifrt_session),
                "HostBufferStore": grpc.stream_unary_rpc_method_handler(self.host_buffer_store),
                "HostBufferLookup": grpc.unary_stream_rpc_method_handler(self.host_buffer_lookup),
                "HostBufferDelete": grpc.unary_unary_rpc_method_handler(self.host_buffer_delete),
                "HostBufferReadFromDisk": grpc.unary_unary_rpc_method_handler(
                    self.host_buffer_read_from_disk
                ),
            },
        )

    def get_version(self, data: bytes, context: _Context) -> bytes:
        """Agrees on versions, or refuses."""
        request = _parse(self._version_request, data, context)
        low, high = request.min_version, request.max_version
        response = self._version_response()
        try:
            response.version.protocol_version = choose(
                "protocol", PROTOCOLS, Range(low.protocol_version, high.protocol_version)
            )
            response.version.ifrt_serdes_version_number = choose(
                "serialization",
                SERDES,
                Range(low.ifrt_serdes_version_number, high.ifrt_serdes_version_number),
            )
        except ValueError as error:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        return _serialize(response)

    def ifrt_session(self, requests: Iterator[bytes], context: _Context) -> Iterator[bytes]:
        """A session lives as long as this stream."""
        replies: SimpleQueue[bytes | Status | None] = SimpleQueue()
        session = self._sessions.open(replies.put)

        def read() -> None:
            try:
                for data in requests:
                    session.receive(data)
            except grpc.RpcError:
                pass
            except DecodeError as error:
                session.hang_up(_malformed("IfrtRequest", data, error))
            except Exception:
                # A stream raises a bare Exception when the client goes away in its middle.
                _log.debug("session %d ended", session.id, exc_info=True)
            finally:
                replies.put(None)

        threading.Thread(target=read, name=f"session-{session.id}", daemon=True).start()
        context.add_callback(lambda: replies.put(None))
        try:
            while True:
                reply = replies.get()
                if reply is None:
                    return
                if isinstance(reply, Status):
                    context.abort(grpc.StatusCode[reply.code.name], reply.message)
                yield reply
        finally:
            self._sessions.close(session)

    def host_buffer_store(self, chunks: Iterator[bytes], context: _Context) -> bytes:
        """Receives a buffer in pieces."""
        metadata = _parse(
            self._store_metadata,
            dict(context.invocation_metadata()).get(_STORE_METADATA_KEY, b""),
            context,
        )
        data = b"".join(_parse(self._store_request, chunk, context).data for chunk in chunks)
        if len(data) != metadata.buffer_size:
            context.abort(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"a host buffer of {metadata.buffer_size} bytes came with {len(data)}",
            )
        self._session(metadata.session_id, context).host_buffers.store(metadata.handle, data)
        return b""

    def host_buffer_lookup(self, data: bytes, context: _Context) -> Iterator[bytes]:
        """Sends a buffer in pieces."""
        request = _parse(self._lookup_request, data, context)
        buffer = self._session(request.session_id, context).host_buffers.get(request.handle)
        if buffer is None:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"unknown host buffer {request.handle}")
        whole = memoryview(buffer)
        for start in range(0, max(1, len(whole)), _CHUNK):
            yield _serialize(self._lookup_response(data=bytes(whole[start : start + _CHUNK])))

    def host_buffer_delete(self, data: bytes, context: _Context) -> bytes:
        """Forgets a buffer."""
        request = _parse(self._delete_request, data, context)
        if not self._session(request.session_id, context).host_buffers.delete(request.handle):
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"unknown host buffer {request.handle}")
        return b""

    def host_buffer_read_from_disk(self, data: bytes, context: _Context) -> bytes:
        """Takes a buffer from a file, on one machine the faster way."""
        metadata = _parse(self._disk_request, data, context).metadata
        session = self._session(metadata.session_id, context)
        directory = os.environ.get(_LARGE_TRANSFER_DIRECTORY)
        if not directory:
            context.abort(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"{_LARGE_TRANSFER_DIRECTORY} is set for the client but not for the proxy",
            )
        path = Path(directory or "") / f"lt_{metadata.handle}"
        try:
            content = path.read_bytes()
        except OSError as error:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"can't read {path}: {error}")
        with contextlib.suppress(OSError):
            path.unlink()
        session.host_buffers.store(metadata.handle, content)
        return b""

    def _session(self, session_id: int, context: _Context) -> Session:
        session = self._sessions.find(session_id)
        if session is None:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"no session {session_id}")
            raise AssertionError  # abort has raised
        return session


def _parse(message_class: ProtoClass, data: bytes | str, context: _Context) -> Proto:
    """A client's message; refuses the call if it is not one."""
    try:
        return message_class.FromString(data)
    except DecodeError as error:
        status = _malformed(message_class.DESCRIPTOR.name, data, error)
        context.abort(grpc.StatusCode[status.code.name], status.message)
        raise AssertionError from None  # abort has raised


def _malformed(name: str, data: bytes | str, error: DecodeError) -> Status:
    message = f"{len(data)} bytes from a client are not a {name}: {error}"
    _log.warning("%s", message)
    return Status(Code.INVALID_ARGUMENT, message)


def _serialize(message: Proto) -> bytes:
    data: bytes = message.SerializeToString()
    return data
