# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The protocol itself: what JAX never sends, and what it relies on without showing it."""

import socket
from typing import Any

import grpc
import pytest
from tests.emulator.proxy.harness import Proxy
from tests.emulator.proxy.raw import RawClient, message

from pathways_emulator.descriptors import messages

INVALID_ARGUMENT, UNIMPLEMENTED, DATA_LOSS = 3, 12, 15

F32 = 11


def single(device: int) -> dict[str, object]:
    """A sharding on one device."""
    sharding = messages()["xla.ifrt.SingleDeviceShardingProto"](device_id=device)
    return {
        "serialized_sharding": {
            "type_name": "xla::ifrt::SingleDeviceSharding",
            "data": sharding.SerializeToString(),
        }
    }


def versions(low: tuple[int, int], high: tuple[int, int]) -> object:
    """A request of a client with these versions of protocol and serialization."""
    return message(
        "GrpcGetVersionRequest",
        min_version={"protocol_version": low[0], "ifrt_serdes_version_number": low[1]},
        max_version={"protocol_version": high[0], "ifrt_serdes_version_number": high[1]},
    )


@pytest.mark.parametrize(
    ("low", "high", "chosen"),
    [
        ((16, 0), (25, 3), (25, 3)),  # jaxlib 0.10.2
        ((16, 0), (25, 5), (25, 5)),  # 0.11.1
        ((16, 2), (25, 6), (25, 6)),  # 0.12.0.1
        ((20, 4), (30, 9), (25, 6)),  # newer than us
    ],
)
def test_the_newest_common_versions_are_chosen(
    proxy: Proxy, low: tuple[int, int], high: tuple[int, int], chosen: tuple[int, int]
) -> None:
    with RawClient(proxy.address) as client:
        reply = messages()["xla.ifrt.proxy.GrpcGetVersionResponse"].FromString(
            client.unary("GetVersion", versions(low, high))
        )
    version = reply.version
    assert (version.protocol_version, version.ifrt_serdes_version_number) == chosen


@pytest.mark.parametrize(("low", "high"), [((26, 2), (30, 6)), ((16, 0), (25, 2))])
def test_a_client_without_common_versions_is_told_so(
    proxy: Proxy, low: tuple[int, int], high: tuple[int, int]
) -> None:
    with RawClient(proxy.address) as client, pytest.raises(grpc.RpcError) as refused:
        client.unary("GetVersion", versions(low, high))
    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert "versions: the client has" in str(refused.value.details())


@pytest.mark.parametrize(
    "name",
    [
        "bitcast_arrays_request",
        "loaded_executable_mpmd_metadata_request",
        "loaded_executable_mpmd_cost_analysis_request",
        "loaded_executable_delete_request",
        "loaded_host_callback_poll_request",
        "loaded_host_callback_return_request",
        "compile_request",
    ],
)
def test_what_is_not_served_is_unimplemented_and_named(proxy: Proxy, name: str) -> None:
    with RawClient(proxy.address) as client:
        reply = client.ask(name)
    status = reply.response_metadata.status
    assert status.code == UNIMPLEMENTED
    assert name.removesuffix("_request").replace("_", "") in status.message.lower()
    assert reply.WhichOneof("response") is None


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("check_future_request", {"future_handle": 5}),
        ("check_value_ready_request", {"value_handles": [5]}),
        ("copy_to_host_buffer_request", {"array_handle": 5, "host_buffer_handle": 6}),
        ("disassemble_into_single_device_arrays_request", {"array_handle": 5}),
        ("is_array_deleted_request", {"array_handle": 5}),
        ("delete_array_request", {"array_handle": [5]}),
        ("destruct_array_request", {"array_handle": [5]}),
        ("loaded_executable_execute_request", {"loaded_executable_handle": 5}),
        ("loaded_executable_metadata_request", {"loaded_executable_handle": 5}),
        ("loaded_executable_destruct_request", {"loaded_executable_handle": 5}),
        ("loaded_executable_fetch_execute_result_request", {"result_status_handle": 5}),
        ("copy_arrays_request", {"array_handles": [5], "result_handles": [7]}),
    ],
)
def test_unknown_handles_are_invalid_arguments(
    proxy: Proxy, name: str, fields: dict[str, Any]
) -> None:
    with RawClient(proxy.address) as client:
        reply = client.ask(name, **fields)
        assert reply.response_metadata.status.code == INVALID_ARGUMENT
        assert "5" in reply.response_metadata.status.message
        assert client.ask("init_request").init_response.session_id > 0


def test_results_of_a_failed_request_are_errors(proxy: Proxy) -> None:
    with RawClient(proxy.address) as client:
        client.ask("copy_arrays_request", array_handles=[5], result_handles=[7])
        reply = client.ask("check_value_ready_request", value_handles=[7])
        assert "unknown array handle 5" in reply.response_metadata.status.message
        reply = client.ask(
            "loaded_executable_execute_request",
            loaded_executable_handle=5,
            execute_options={"fill_status": True},
            result_array_handle=[8],
            result_status_handle=9,
        )
        reply = client.ask("loaded_executable_fetch_execute_result_request", result_status_handle=9)
        assert "unknown executable handle 5" in reply.response_metadata.status.message


def test_an_array_waits_for_its_buffer_and_later_requests_wait_for_it(proxy: Proxy) -> None:
    with RawClient(proxy.address) as client:
        session_id = client.ask("init_request").init_response.session_id
        make = client.send(
            "make_array_from_host_buffer_request",
            dtype={"kind": F32},
            shape={"dims": [2, 3]},
            sharding=single(5),
            host_buffer_handle=1,
            array_handle=1,
        )
        copy = client.send("copy_to_host_buffer_request", array_handle=1, host_buffer_handle=2)
        client.store(session_id, 1, bytes(range(24)))
        assert [client.receive().response_metadata.op_id for _ in range(2)] == [make, copy]
        assert client.lookup(session_id, 2) == bytes(range(24))
        delete = message("GrpcHostBufferDeleteRequest", session_id=session_id, handle=2)
        client.unary("HostBufferDelete", delete)
        with pytest.raises(grpc.RpcError) as unknown:
            client.lookup(session_id, 2)
        assert unknown.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_buffers_of_the_wrong_size_are_refused(proxy: Proxy) -> None:
    with RawClient(proxy.address) as client:
        session_id = client.ask("init_request").init_response.session_id
        for size in (10, 50):
            with pytest.raises(grpc.RpcError) as wrong:
                client.store(session_id, 1, bytes(24), size=size)
            assert wrong.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        client.store(session_id, 1, bytes(20))
        reply = client.ask(
            "make_array_from_host_buffer_request",
            dtype={"kind": F32},
            shape={"dims": [2, 3]},
            sharding=single(0),
            host_buffer_handle=1,
            array_handle=1,
        )
        assert reply.response_metadata.status.code == INVALID_ARGUMENT
        assert "20 bytes" in reply.response_metadata.status.message


def test_replies_are_numbered_and_return_user_contexts_once(proxy: Proxy) -> None:
    with RawClient(proxy.address) as client:
        numbered = [client.ask("init_request", user=11)]
        # An error has no body: its context comes back with the next reply that has one.
        assert client.ask("bitcast_arrays_request", user=12).response_metadata.status.code
        client.ask("destruct_array_request")
        numbered.append(client.ask("init_request", user=13))
        numbered.append(client.ask("init_request"))
    metadata = [reply.response_metadata for reply in numbered]
    assert [entry.seq_num for entry in metadata] == [0, 1, 2]
    assert [list(entry.destroyed_user_context_ids) for entry in metadata] == [[11], [12, 13], []]


def test_a_large_buffer_goes_there_and_back(proxy: Proxy) -> None:
    data = bytes(range(256)) * 4096 * 12
    with RawClient(proxy.address) as client:
        session_id = client.ask("init_request").init_response.session_id
        client.store(session_id, 1, data, piece_size=1 << 20)
        assert client.lookup(session_id, 1) == data
        assert client.ask("init_request").init_response.session_id == session_id


def test_unknown_methods_sessions_and_other_protocols_are_refused(proxy: Proxy) -> None:
    with RawClient(proxy.address) as client:
        with pytest.raises(grpc.RpcError) as unknown:
            client.unary("NoSuchMethod", message("GrpcGetVersionRequest"))
        assert unknown.value.code() is grpc.StatusCode.UNIMPLEMENTED
        with pytest.raises(grpc.RpcError) as no_session:
            client.lookup(10**9, 1)
        assert no_session.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    host, _, port = proxy.address.partition(":")
    with socket.create_connection((host, int(port)), timeout=10) as web:
        web.sendall(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
        while web.recv(4096):
            pass  # The server says what it speaks, and hangs up.
    with RawClient(proxy.address) as client:
        assert len(client.ask("init_request").init_response.all_devices) == 8


def test_many_short_sessions_leave_the_proxy_well(proxy: Proxy) -> None:
    # The end of a session collects garbage, of which message classes once were a part.
    for _ in range(60):
        with RawClient(proxy.address) as client:
            client.ask("init_request")
            client.ask("copy_arrays_request", array_handles=[5], result_handles=[7])
            client.ask("loaded_executable_execute_request", loaded_executable_handle=5)
            client.ask("check_value_ready_request", value_handles=[7])
