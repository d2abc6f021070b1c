# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The demo's stage on which the slices are processes of this machine."""

import contextlib
import errno
import random
import socket
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from demo_stage import COMMAND, Child, DemoError, Stage, Step
from demo_story import Host

_SERVICE_S = 60.0
_RESERVATION_PORT = 28999
_SERVICE_PORTS = (29000, 29001)
_NETWORKS = range(64, 250)


class LocalStage(Stage):
    """A service of ``pathways-slurm up`` with the local scheduler."""

    # It takes two or three.
    back_within_s = 8.0

    def __init__(self, home: Path, settings: Mapping[str, str]) -> None:
        super().__init__(home, {**settings, "PATHWAYS_SCHEDULER": "local"})
        self._kept = contextlib.ExitStack()
        self._service: Child | None = None

    def bring_up(self) -> Iterator[Step]:
        network = self._kept.enter_context(reserved_network())
        self._env["PATHWAYS_LOCAL_NETWORK"] = network
        self._service = Child([COMMAND, "up"], self._env, self.service_log)
        yield Step(
            "starting the service",
            "service up",
            _SERVICE_S,
            self.cluster_env.exists,
            self._service,
        )

    def _worker_pid(self, index: int, number: int, host: Host) -> int:
        del number  # the status has told the pid
        if host.pid is None:
            raise DemoError(f"the status of slice {index} has no pid for {host.node}")
        return host.pid

    def _end_service(self) -> list[str]:
        faults = []
        if self._service is not None:
            # In this order: "down" would not find a service that is only about to start.
            self._service.end(grace_s=60)
            try:
                down = self._run(COMMAND, "down", "--timeout", "60", timeout_s=90)
                if down.returncode != 0:
                    faults.append(f"'pathways-slurm down' failed: {down.stderr.strip()}")
            except subprocess.TimeoutExpired:
                faults.append("'pathways-slurm down' did not end within 90 s")
        self._kept.close()
        return faults


@contextlib.contextmanager
def reserved_network() -> Iterator[str]:
    """A loopback network 127.X.0.0/16 that nothing uses, kept from other demos meanwhile.

    Yields:
        The network, as PATHWAYS_LOCAL_NETWORK takes it.

    Raises:
        DemoError: Every network is in use.
    """
    for x in random.sample(_NETWORKS, len(_NETWORKS)):
        with contextlib.ExitStack() as stack:
            address = f"127.{x}.0.1"
            try:
                # This one stays bound: another demo that tries it goes on to the next network.
                kept = stack.enter_context(socket.socket())
                kept.bind((address, _RESERVATION_PORT))
                for port in _SERVICE_PORTS:
                    with socket.socket() as probe:
                        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                        probe.bind((address, port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise DemoError(f"can't bind {address}: {error.strerror}") from error
                continue
            yield f"127.{x}.0.0/16"
            return
    raise DemoError(
        f"no free network among 127.{_NETWORKS[0]}.0.0/16 .. 127.{_NETWORKS[-1]}.0.0/16"
    )
