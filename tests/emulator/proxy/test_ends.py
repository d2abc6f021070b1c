# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""How sessions and proxies end, and what clients are told and disks are left with."""

import signal
from pathlib import Path

import grpc
import pytest
from tests.emulator.proxy.conftest import free_address
from tests.emulator.proxy.harness import Client, Proxy
from tests.emulator.proxy.raw import RawClient, message

from pathways_emulator.membership import SliceMember

INVALID_ARGUMENT, UNAVAILABLE = 3, 14


def test_a_proxy_that_is_told_to_end_is_unavailable_and_leaves_no_file(tmp_path: Path) -> None:
    address = free_address()
    scratch = tmp_path / "scratch" / "suspend"
    left = scratch / f"test-{address}" / "slice-0-incarnation-1" / "session-9"
    of_others = scratch / "other-host-127.0.0.1:1" / "slice-0-incarnation-1" / "session-9"
    for file in (left, of_others):
        file.parent.mkdir(parents=True)
        file.touch()
    with Proxy(address, "tpuv6e:2x2", 2, tmp_path / "proxy.log") as proxy:
        # A proxy that was killed had left the other one.
        proxy.wait_until(lambda: proxy.saved_files() == [of_others])
        with (
            Client("pause", proxy, tmp_path / "client.log") as client,
            Client("pause", proxy, tmp_path / "busy.log") as busy,
            RawClient(proxy.address) as raw,
        ):
            raw.ask("init_request")
            raw.send("make_array_from_host_buffer_request", host_buffer_handle=1)
            for program in (client, busy):
                program.expect("ready")
                assert program.asked("make") == "ok"
            proxy.suspend(1)
            assert len(proxy.saved_files()) == 3
            client.say("use 1")
            assert busy.asked("spin 2 0") == "ok"
            assert not client.answers_within(0.5)
            proxy.process.send_signal(signal.SIGTERM)
            for program in (client, busy):
                assert program.hear().startswith("error UNAVAILABLE: ")
            # A request that waits for something when the end comes is told the reason.
            answer = raw.receive().response_metadata.status
            assert (answer.code, answer.message) == (UNAVAILABLE, "the IFRT proxy ends")
            with pytest.raises(grpc.RpcError) as ended:
                raw.receive()
            assert ended.value.code() is grpc.StatusCode.UNAVAILABLE
        proxy.finish()
        assert proxy.saved_files() == [of_others]


def test_one_lost_slice_too_many_ends_the_sessions(tmp_path: Path) -> None:
    with Proxy(free_address(), "tpuv6e:2x2", 4, tmp_path / "proxy.log", lost_at_most=1) as proxy:
        proxy.suspend(3)
        with Client("pause", proxy, tmp_path / "client.log") as client:
            client.expect("ready")
            assert client.asked("make") == "ok"
            proxy.lose(1)
            assert "DATA_LOSS: slice 1" in client.asked("use 1")
            assert client.asked("use 0") == "ok"
            with RawClient(proxy.address) as raw:
                raw.ask("init_request")
                proxy.lose(2)
                heard = client.asked("use 0")
                answer = raw.ask("init_request").response_metadata.status
                with pytest.raises(grpc.RpcError) as ended:
                    raw.receive()
            assert ended.value.code() is grpc.StatusCode.UNAVAILABLE
            assert str(ended.value.details()) == answer.message
            assert heard.startswith("error UNAVAILABLE: slices 1, 2 are lost: 2 at once")
            assert "--num_elastic_instances=1" in heard
        # Whoever comes now sees from the start what there is.
        with Client("pause", proxy, tmp_path / "late.log") as client:
            client.expect("ready")
            assert "DATA_LOSS: slice 1" in client.asked("make")
            assert client.asked("use 0") == "ok"
        proxy.revive(1)
        with Client("pause", proxy, tmp_path / "third.log") as client:
            client.expect("ready")
            assert client.asked("make") == "ok"


def test_slices_that_were_never_up_are_not_lost(tmp_path: Path) -> None:
    log = tmp_path / "proxy.log"
    down = SliceMember(1, 0, False, "has not registered")
    with (
        Proxy(free_address(), "tpuv6e:2x2", 2, log, lost_at_most=0, members=[down]) as proxy,
        Client("pause", proxy, tmp_path / "client.log") as client,
    ):
        client.expect("ready")
        assert "DATA_LOSS: slice 1: has not registered" in client.asked("make")
        proxy.apply(SliceMember(1, 0, False, "2 hosts are missing"))
        assert client.asked("use 0") == "ok"
        proxy.revive(1)
        assert client.asked("make") == "ok"
        proxy.lose(1)
        assert "UNAVAILABLE: slices 1 are lost: 1 at once" in client.asked("use 0")


def test_what_is_not_a_message_is_refused_in_one_line(proxy: Proxy) -> None:
    before = len(proxy.log.read_text())
    with RawClient(proxy.address) as client:
        client.ask("init_request")
        client.send_raw(b"\xff\xff\xff")
        with pytest.raises(grpc.RpcError) as refused:
            client.receive()
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "3 bytes from a client are not a IfrtRequest" in str(refused.value.details())
    with RawClient(proxy.address) as client:
        for method in ("GetVersion", "HostBufferDelete"):
            with pytest.raises(grpc.RpcError) as refused:
                client.unary_raw(method, b"\xff\xff\xff")
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        reply = client.ask(
            "make_error_arrays_request",
            array_specs=[
                message(
                    "MakeErrorArraysRequest",
                ).array_specs.add(
                    dtype={"kind": 11},
                    sharding={
                        "serialized_sharding": {
                            "type_name": "xla::ifrt::SingleDeviceSharding",
                            "data": b"\xff\xff",
                        }
                    },
                )
            ],
            array_handles=[7],
        )
        assert reply.response_metadata.status.code == INVALID_ARGUMENT
    said = proxy.log.read_text()[before:]
    assert "Traceback" not in said
    assert len([line for line in said.splitlines() if "WARNING" in line]) == 4, said
