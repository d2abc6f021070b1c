# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Resource manager, proxy and workers as they are run, and a program on top of them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.emulator.proxy.conftest import HOST
from tests.emulator.proxy.harness import Client

from pathways_slurm import topology

NETWORK = HOST.rpartition(".")[0].rpartition(".")[0]
MANAGER, PROXY = f"{HOST}:29001", f"{HOST}:29000"
SHAPE = topology.topology_for("v6e", "2x2")
TIMEOUT_S = 60.0


class Service:
    """Two slices of one host each."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.directory = directory
        self.scratch = directory / "scratch"
        self._stack = stack
        self.address = PROXY

    def start(
        self, name: str, module: str, flags: Mapping[str, object], environment: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        """Starts one of its processes, which ends with the test."""
        all_flags = {**flags, "gcs_scratch_location": self.scratch}
        with (self.directory / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", f"pathways_emulator.{module}"),
                    *(f"--{flag}={value}" for flag, value in all_flags.items()),
                ],
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        return process

    def worker(self, index: int, incarnation: int) -> subprocess.Popen[bytes]:
        """The only host of a slice."""
        node = f"{NETWORK}.{1 + index}.1"
        environment = topology.host_environment(
            SHAPE,
            host_index=0,
            node_addresses=[node],
            slice_index=index,
            num_slices=2,
            coordinator=HOST,
        )
        return self.start(
            f"worker-{index}",
            "server",
            {"server_port": 29001, "resource_manager_address": MANAGER},
            {
                **environment,
                "PATHWAYS_SLICE_INDEX": str(index),
                "PATHWAYS_HOST_INDEX": "0",
                "PATHWAYS_INCARNATION": str(incarnation),
                "PATHWAYS_NODE_NAMES": node,
                "PATHWAYS_NODE_ADDRESSES": node,
            },
        )

    def log(self) -> str:
        """What the proxy said."""
        return (self.directory / "proxy.log").read_text()

    def wait_for(self, holds: Callable[[], bool]) -> None:
        """Waits until something is true of the log or the disk."""
        deadline = time.monotonic() + TIMEOUT_S
        while not holds():
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.05)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with ExitStack() as stack:
        service = Service(tmp_path, stack)
        bind = {"PATHWAYS_BIND_ADDRESS": HOST}
        manager = {
            "server_port": 29001,
            "node_type": "resource_manager",
            "instance_type": "tpuv6e:2x2",
            "instance_count": 2,
        }
        service.start("manager", "server", manager, bind)
        proxy = {
            "server_port": 29000,
            "resource_manager_address": MANAGER,
            "num_elastic_instances": 2,
        }
        service.start("proxy", "proxy_server", proxy, bind)
        yield service


def test_a_worker_that_gets_sigterm_ends_when_its_data_is_saved_and_the_next_one_brings_it_back(
    service: Service, tmp_path: Path
) -> None:
    service.worker(0, 1)
    first = service.worker(1, 1)
    service.wait_for(lambda: "slice 0 is up" in service.log() and "slice 1 is up" in service.log())
    with Client("pause", service, tmp_path / "client.log") as client:
        client.expect("ready")
        assert client.asked("make") == "ok"
        for incarnation in (2, 3):
            first.send_signal(signal.SIGTERM)
            assert first.wait(TIMEOUT_S) == 0
            assert len([path for path in service.scratch.rglob("*") if path.is_file()]) == 1
            client.say("use")
            assert not client.answers_within(0.3)
            first = service.worker(1, incarnation)
            client.expect("ok")
        service.wait_for(
            lambda: not service.scratch.exists() or not any(service.scratch.rglob("session-*"))
        )
