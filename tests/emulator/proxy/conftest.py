# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Fixtures: a proxy for a module, and one for a single test."""

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.emulator.proxy.harness import Client, Proxy

HOST = "127.61.0.1"


def free_address() -> str:
    """A free port of the network of these tests."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return f"{HOST}:{probe.getsockname()[1]}"


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """Two slices of four chips, shared by the tests of a module."""
    log = tmp_path_factory.mktemp("proxy") / "proxy.log"
    with Proxy(free_address(), "tpuv6e:2x2", 2, log) as running:
        yield running


@pytest.fixture
def start_client(proxy: Proxy, tmp_path: Path) -> Iterator[Callable[..., Client]]:
    """Starts clients of ``proxy`` that end with the test."""
    with ExitStack() as stack:

        def start(program: str, *arguments: str) -> Client:
            log = tmp_path / f"{program}.log"
            return stack.enter_context(Client(program, proxy, log, arguments))

        yield start


@pytest.fixture(scope="module")
def pause(proxy: Proxy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A client of ``proxy`` that does what it is told, shared by the tests of a module."""
    with Client("pause", proxy, tmp_path_factory.mktemp("pause") / "client.log") as client:
        client.expect("ready")
        yield client
