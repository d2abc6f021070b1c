# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What only this machine can tell about settings: directories, ports and programs.

For a service that is about to start. One that runs already holds its own ports.
"""

import errno
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pathways_slurm import files, launch
from pathways_slurm.config import setting_fault
from pathways_slurm.faults import Fault

if TYPE_CHECKING:
    from pathways_slurm.config import Settings


def preflight(settings: "Settings") -> list[Fault]:
    """Everything on this machine that would keep a service with these settings from starting.

    Directories that are missing are made, because that is the only proof that they can be.
    """
    faults = [*_directories(settings), *_programs(settings)]
    if settings.scheduler == "local":
        faults += [*_service_ports(settings), *_worker_ports(settings)]
    return faults


def _directories(settings: "Settings") -> Iterator[Fault]:
    home = settings.paths.directory
    if (problem := _unwritable(home)) is not None:
        yield setting_fault("PATHWAYS_HOME", str(settings.home), problem)
    scratch = settings.scratch_dir
    if scratch is not None and (problem := _unwritable(scratch)) is not None:
        yield setting_fault("GCS_BUCKET", settings.gcs_bucket, problem)


def _unwritable(directory: Path) -> str | None:
    try:
        if not directory.is_dir():
            files.make_private_dir(directory)
        with tempfile.NamedTemporaryFile(dir=directory, prefix=".pathways-preflight-"):
            pass
    except OSError as error:
        return f"can't be written to: {directory}: {error.strerror or error}"
    return None


def _programs(settings: "Settings") -> Iterator[Fault]:
    needed = [launch.BASH, launch.WORKER_HOST_SCRIPT]
    if settings.container == "none":
        needed += [Path(launch.server_program(settings)), Path(launch.proxy_program(settings))]
    for program in needed:
        if not os.access(program, os.R_OK | os.X_OK):
            yield setting_fault(
                "PATHWAYS_RUNTIME",
                settings.runtime,
                f"needs {program}, which is not there or can't be executed; "
                "set the environment up again from a clone of the repository",
            )


def _service_ports(settings: "Settings") -> Iterator[Fault]:
    address = settings.local_service_address
    for variable, port in (
        ("PATHWAYS_PROXY_PORT", settings.proxy_port),
        ("PATHWAYS_RM_PORT", settings.rm_port),
    ):
        if (problem := _unbindable(address, port)) is not None:
            yield setting_fault(variable, str(port), problem)


def _worker_ports(settings: "Settings") -> Iterator[Fault]:
    for slice_index in range(settings.max_slices):
        for host_index in range(settings.topology.hosts):
            address = settings.local_host_address(slice_index, host_index)
            if (problem := _unbindable(address, settings.worker_port)) is not None:
                # The first says it all: the others are most likely of the same service.
                yield setting_fault("PATHWAYS_WORKER_PORT", str(settings.worker_port), problem)
                return


def _unbindable(address: str, port: int) -> str | None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # Without this, connections of an earlier service that linger in TIME_WAIT would be in the
        # way for a minute. A socket that listens is in the way all the same.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
            probe.listen(1)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return (
                    f"is in use on {address}, maybe by another service: choose another port, or "
                    "another PATHWAYS_LOCAL_NETWORK"
                )
            return f"can't be used on {address}: {error.strerror or error}"
    return None
