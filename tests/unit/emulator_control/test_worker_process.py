# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from pathways_emulator import membership_pb2 as pb
from pathways_emulator import processes, worker_process
from pathways_emulator.address import Address
from pathways_emulator.worker_process import WorkerProcessError

RM = Address("10.0.0.1", 29001)
WORKER_FLAGS = [
    "--server_port=29001",
    "--resource_manager_address=10.0.0.1:29001",
    "--gcs_scratch_location=/tmp",
]
PLACE = {"PATHWAYS_SLICE_INDEX": "1", "PATHWAYS_HOST_INDEX": "0", "PATHWAYS_INCARNATION": "2"}


def host(pid: int, **changes: object) -> pb.HostStatus:
    known = pb.HostStatus(
        slice_index=1,
        host_index=0,
        incarnation=2,
        pid=pid,
        pid_space=processes.pid_space(),
        node="here",
    )
    for name, value in changes.items():
        setattr(known, name, value)
    return known


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    """A process in a worker's environment that is none."""
    argv = [sys.executable, "-c", "input()", *WORKER_FLAGS]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, env={**os.environ, **PLACE}) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(
    "command",
    [
        ["/usr/bin/python3", "/opt/bin/pathways-emulator-server"],
        ["/opt/bin/pathways-emulator-server"],
        ["/usr/bin/python3", "-m", "pathways_emulator.server"],
    ],
)
def test_a_worker_is_known_by_its_command_line(command: list[str]) -> None:
    assert worker_process.is_worker([*command, *WORKER_FLAGS], RM)


@pytest.mark.parametrize(
    "command_line",
    [
        [],
        ["vim", *WORKER_FLAGS],
        ["pathways-emulator-proxy-server", *WORKER_FLAGS],
        ["pathways-emulator-server"],
        ["pathways-emulator-server", "--help"],
        ["pathways-emulator-server", *WORKER_FLAGS, "--node_type=resource_manager"],
        ["pathways-emulator-server", *WORKER_FLAGS[:1], WORKER_FLAGS[1] + "1", WORKER_FLAGS[2]],
    ],
)
def test_nothing_else_is_a_worker_of_the_instance(command_line: list[str]) -> None:
    assert not worker_process.is_worker(command_line, RM)


def test_a_process_that_is_not_the_worker_is_not_signalled(
    other: subprocess.Popen[bytes],
) -> None:
    with (
        pytest.raises(WorkerProcessError, match="is not that worker but another process"),
        worker_process.find(host(other.pid), RM) as found,
    ):
        found.send(signal.SIGKILL)
    assert other.poll() is None


@pytest.mark.parametrize("pid_space", ["", "another boot pid:[1]"])
def test_a_process_of_another_machine_is_told(pid_space: str) -> None:
    with (
        pytest.raises(WorkerProcessError, match="of here, can't be signalled from here"),
        worker_process.find(host(1, pid_space=pid_space), RM),
    ):
        pass


def test_a_process_that_has_ended_is_told() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    with (
        pytest.raises(WorkerProcessError, match="has ended"),
        worker_process.find(host(ended.pid), RM),
    ):
        pass
