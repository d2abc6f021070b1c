# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Real processes of the emulator on loopback addresses of these tests' own."""

import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from pathways_emulator.address import Address
from pathways_emulator.membership import Membership, SliceMember
from pathways_emulator.membership_client import Watcher
from pathways_slurm import topology

NETWORK = "127.102"
RM = Address(f"{NETWORK}.0.1", 29001)
PROXY = Address(f"{NETWORK}.0.1", 29000)
WORKER_PORT = 29001
# How long anything that should happen may take on a busy machine.
PATIENCE_S = 30.0
SCRATCH = "--gcs_scratch_location=gs://bucket/pathways-scratch"


class Process:
    """A process whose output is kept, and which a test waits for and signals."""

    def __init__(self, argv: Sequence[str], environment: dict[str, str], log: Path) -> None:
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *argv],
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        """Ends it as kill -9 does, also if it is stopped."""
        self._process.kill()
        self._process.wait()

    def exit_code(self, timeout_s: float = PATIENCE_S) -> int:
        """Waits for its end."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {timeout_s} s:\n{self.text()}") from None

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_for(self, pattern: str, timeout_s: float = PATIENCE_S) -> None:
        """Waits until its output matches."""
        deadline_s = time.monotonic() + timeout_s
        while not re.search(pattern, self.text()):
            if time.monotonic() > deadline_s or not self.running:
                raise AssertionError(f"no line {pattern!r} in:\n{self.text()}")
            time.sleep(0.01)


class Observer:
    """Follows membership as the proxy does, and lets a test wait for a state of it."""

    def __init__(self) -> None:
        self._watcher = Watcher(RM)
        self._inbox: queue.SimpleQueue[Membership] = queue.SimpleQueue()
        self.history: list[Membership] = []
        self._thread = threading.Thread(target=self._watcher.run, args=(self._inbox.put,))
        self._thread.start()

    def close(self) -> None:
        self._watcher.stop()
        self._thread.join()

    def wait_until(
        self, predicate: Callable[[Membership], bool], timeout_s: float = PATIENCE_S
    ) -> Membership:
        """The first snapshot from now on, or the current one, for which the predicate holds."""
        if self.history and predicate(self.history[-1]):
            return self.history[-1]
        deadline_s = time.monotonic() + timeout_s
        while True:
            try:
                found = self._inbox.get(timeout=max(0.0, deadline_s - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"not seen in {timeout_s} s: {self.history}") from None
            self.history.append(found)
            if predicate(found):
                return found

    def wait_alive(self, index: int, incarnation: int) -> SliceMember:
        snapshot = self.wait_until(
            lambda m: m.slices[index].alive and m.slices[index].incarnation == incarnation
        )
        return snapshot.slices[index]

    def wait_lost(self, index: int, timeout_s: float = PATIENCE_S) -> SliceMember:
        snapshot = self.wait_until(lambda m: not m.slices[index].alive, timeout_s)
        return snapshot.slices[index]


class Cluster:
    """Starts resource manager, workers and proxy, and ends whatever is left of them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._processes: list[Process] = []
        self._observers: list[Observer] = []

    def run(self, name: str, argv: Sequence[str], environment: dict[str, str]) -> Process:
        number = len(self._processes)
        process = Process(argv, environment, self._directory / f"{number:02}-{name}.log")
        self._processes.append(process)
        return process

    def manager(
        self,
        *,
        slices: int = 1,
        instance_type: str = "tpuv6e:2x2",
        heartbeat_timeout_s: float = 10.0,
        wait: bool = True,
        overrides: dict[str, str] | None = None,
    ) -> Process:
        process = self.run(
            "rm",
            [
                "pathways_emulator.server",
                f"--server_port={RM.port}",
                "--node_type=resource_manager",
                f"--instance_type={instance_type}",
                f"--instance_count={slices}",
                SCRATCH,
                "--enable_gcs_olm=false",
            ],
            {
                "PATHWAYS_BIND_ADDRESS": RM.host,
                "PATHWAYS_HEARTBEAT_TIMEOUT_S": str(heartbeat_timeout_s),
                **(overrides or {}),
            },
        )
        if wait:
            process.wait_for("resource manager listens")
        return process

    def worker(
        self,
        slice_index: int,
        host_index: int = 0,
        *,
        incarnation: int = 1,
        shape: str = "2x2",
        lease_s: float = 30.0,
        bind: str = "",
        overrides: dict[str, str] | None = None,
    ) -> Process:
        """A worker; `bind` puts it on another address than its own."""
        environment = worker_environment(slice_index, host_index, incarnation, shape)
        environment["PATHWAYS_LEASE_S"] = str(lease_s)
        if bind:
            environment["PATHWAYS_BIND_ADDRESS"] = bind
        environment |= overrides or {}
        return self.run(
            f"slice-{slice_index}-host-{host_index}-run-{incarnation}",
            [
                "pathways_emulator.server",
                f"--server_port={WORKER_PORT}",
                "--resource_manager_address",
                str(RM),
                SCRATCH,
                "--enable_gcs_olm=false",
            ],
            environment,
        )

    def proxy(self, slices: int = 1) -> Process:
        return self.run(
            "proxy",
            [
                "pathways_emulator.proxy_server",
                f"--server_port={PROXY.port}",
                f"--resource_manager_address={RM}",
                SCRATCH,
                f"--num_elastic_instances={slices}",
            ],
            {"PATHWAYS_BIND_ADDRESS": PROXY.host},
        )

    def observer(self) -> Observer:
        observer = Observer()
        self._observers.append(observer)
        return observer

    def close(self) -> None:
        for observer in self._observers:
            observer.close()
        for process in self._processes:
            if process.running:
                process.kill()


def worker_environment(
    slice_index: int, host_index: int, incarnation: int, shape: str
) -> dict[str, str]:
    """What the scheduler and scripts/lib/worker_host.sh set."""
    parsed = topology.topology_for("v6e", shape)
    nodes = [f"{NETWORK}.{1 + slice_index}.{1 + host}" for host in range(parsed.hosts)]
    return {
        **topology.host_environment(
            parsed,
            host_index=host_index,
            node_addresses=nodes,
            slice_index=slice_index,
            num_slices=slice_index + 1,
            coordinator=RM.host,
        ),
        "PATHWAYS_SLICE_INDEX": str(slice_index),
        "PATHWAYS_HOST_INDEX": str(host_index),
        "PATHWAYS_INCARNATION": str(incarnation),
        "PATHWAYS_NODE_NAMES": ",".join(nodes),
        "PATHWAYS_NODE_ADDRESSES": ",".join(nodes),
    }
