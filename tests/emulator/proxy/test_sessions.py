# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Several clients, clients that are killed, and what is left of them."""

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.emulator.proxy.clients.hoard import MEBIBYTES
from tests.emulator.proxy.conftest import free_address
from tests.emulator.proxy.harness import Client, Proxy
from tests.emulator.proxy.raw import RawClient

MEBIBYTE = 1 << 20


@pytest.fixture(scope="module")
def large_proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """Four slices of eight chips."""
    log = tmp_path_factory.mktemp("large") / "proxy.log"
    with Proxy(free_address(), "tpuv6e:2x4", 4, log) as running:
        yield running


def test_two_clients_at_once_do_not_disturb_each_other(start_client: Callable[..., Client]) -> None:
    clients = [start_client("arrays"), start_client("programs"), start_client("arrays")]
    for client in clients:
        client.expect("done")
    for client in clients:
        client.finish()


def test_collectives_over_thirty_two_devices(large_proxy: Proxy, tmp_path: Path) -> None:
    with Client("collectives", large_proxy, tmp_path / "client.log") as client:
        client.expect("done")
        client.finish()


def test_large_buffers_may_go_through_files(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path_factory.mktemp("transfers")
    monkeypatch.setenv("IFRT_PROXY_GRPC_LARGE_TRANSFER_OPTIMIZATION_DIRECTORY", str(directory))
    monkeypatch.setenv("IFRT_PROXY_GRPC_LARGE_TRANSFER_OPTIMIZATION_THRESHOLD_BYTES", "1024")
    with (
        Proxy(free_address(), "tpuv6e:2x2", 2, tmp_path / "proxy.log") as proxy,
        Client("hoard", proxy, tmp_path / "client.log", arguments=["end"]) as client,
    ):
        client.expect("full")
        client.finish()
    assert list(directory.iterdir()) == []


def test_a_session_leaves_nothing_behind_however_it_ends(
    large_proxy: Proxy, tmp_path: Path
) -> None:
    sizes = []
    for ending in ("end", "stay", "end", "stay", "end"):
        log = tmp_path / "client.log"
        with Client("hoard", large_proxy, log, arguments=[ending]) as client:
            client.expect("full")
            if ending == "stay":
                client.process.kill()
            client.process.wait(60)
        sizes.append(_size_after_session(large_proxy))
    # One session's arrays, had they stayed, would be four times as much.
    assert max(sizes[1:]) - sizes[0] < MEBIBYTES * MEBIBYTE / 4, sizes
    with RawClient(large_proxy.address) as client:
        assert len(client.ask("init_request").init_response.all_devices) == 32


def _size_after_session(proxy: Proxy) -> int:
    """The proxy's memory once it has closed every session and cleaned up."""
    deadline = time.monotonic() + 30
    while True:
        log = proxy.log.read_text()
        if len(re.findall(r"session \d+ opened", log)) == len(
            re.findall(r"session \d+ closed", log)
        ):
            return proxy.resident_bytes()
        assert time.monotonic() < deadline, proxy.tail()
        time.sleep(0.05)
