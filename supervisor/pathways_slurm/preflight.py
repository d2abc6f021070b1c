# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What only this machine can tell about settings: directories, ports and programs.

For a service that is about to start: one that runs already holds its own ports.
"""

import errno
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Set
from pathlib import Path

from pathways_slurm import containers, emulator_image, launch
from pathways_slurm.config import Settings, in_order, read_settings, setting_fault
from pathways_slurm.faults import Fault, SettingsError
from pathways_slurm.images import PROXY_VARIABLE, SERVER_VARIABLE, ImageError, missing_files
from pathways_slurm.scheduler.local_view import service_node, slice_node


def load_checked_settings(environ: Mapping[str, str]) -> Settings:
    """Reads the settings and checks them on this machine, with all faults of both in one go.

    Raises:
        SettingsError: With the faults, at most one for a variable.
    """
    settings, faults = read_settings(environ)
    at_fault = {fault.variable for fault in faults}
    faults = in_order([*faults, *preflight(settings, at_fault)])
    if faults:
        raise SettingsError(faults)
    return settings


def preflight(
    settings: Settings, at_fault: Set[str] = frozenset(), *, service_address: str | None = None
) -> list[Fault]:
    """Everything on this machine that would keep a service with these settings from starting.

    Leaves nothing behind.

    Args:
        settings: To check.
        service_address: Where RM and proxy will bind, once that is known; a local service's always
            is.
        at_fault: Variables whose settings are not what the user meant; nothing that depends on
            them is checked.
    """
    if service_address is None and settings.scheduler == "local":
        service_address = service_node(settings.local_network).address
    faults = [
        fault
        for variables, check in _CHECKS.items()
        if at_fault.isdisjoint(variables)
        for fault in check(settings)
    ]
    ports = {"PATHWAYS_PROXY_PORT": settings.proxy_port, "PATHWAYS_RM_PORT": settings.rm_port}
    for variable, port in ports.items():
        unknown = {variable, "PATHWAYS_SCHEDULER", "PATHWAYS_LOCAL_NETWORK"} & at_fault
        if service_address is None or unknown:
            continue
        if (problem := _unbindable(service_address, port)) is not None:
            faults.append(setting_fault(variable, str(port), problem))
    return in_order(faults)


def _home(settings: Settings) -> Iterator[Fault]:
    if (problem := _unwritable(settings.paths.directory)) is not None:
        yield setting_fault("PATHWAYS_HOME", str(settings.home), problem)
    elif settings.paths.cluster_env.is_dir():
        problem = f"won't do: {settings.paths.cluster_env} is a directory; it has to be a file"
        yield setting_fault("PATHWAYS_HOME", str(settings.home), problem)


def _scratch(settings: Settings) -> Iterator[Fault]:
    directory = settings.scratch_dir
    if directory is not None and (problem := _unwritable(directory)) is not None:
        yield setting_fault("GCS_BUCKET", settings.gcs_bucket, problem)


def _unwritable(directory: Path) -> str | None:
    existing = next(path for path in (directory, *directory.parents) if os.path.lexists(path))
    try:
        # The proof is in the doing: access() does not know read-only and odd file systems.
        with tempfile.TemporaryFile(dir=existing, prefix=".pathways-preflight-") as file:
            # More than a block, so that a disk that is full says so.
            file.write(bytes(64 * 1024))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return f"can't be used: nothing can be created in {existing}: {error.strerror or error}"
    return None


def _programs(settings: Settings) -> Iterator[Fault]:
    needed = [launch.BASH, launch.WORKER_HOST_SCRIPT]
    if settings.container == "none":
        needed += launch.emulator_programs()
    else:
        needed += [containers.RUN, containers.RUN_WORKER, containers.REMOVE_STALE]
    for program in needed:
        if not os.access(program, os.R_OK | os.X_OK):
            yield setting_fault(
                "PATHWAYS_RUNTIME",
                settings.runtime,
                f"needs {program}, which is not there or can't be executed; "
                "set the environment up again from a clone of the repository",
            )


def _emulator(settings: Settings) -> Iterator[Fault]:
    version = containers.installed_jax()
    brings_its_own = settings.container == "enroot" and settings.server_image
    if settings.runtime != "emulator" or brings_its_own or version is None:
        return
    if emulator_image.runs_on(version):
        return
    yield setting_fault(
        "PATHWAYS_RUNTIME",
        settings.runtime,
        f"does not run on the JAX {version} of {sys.prefix}, it needs {emulator_image.OLDEST_JAX} "
        "or newer: make an environment for it with scripts/setup_env.sh --emulator, or set "
        "PATHWAYS_RUNTIME=pathways to use TPUs",
    )


def _enroot(settings: Settings) -> Iterator[Fault]:
    if settings.container == "enroot" and shutil.which("enroot") is None:
        yield setting_fault(
            "PATHWAYS_CONTAINER",
            settings.container,
            f"needs the command enroot, which is not on PATH ({os.environ.get('PATH', '')}): "
            "install NVIDIA Enroot 3.5 or newer on every node of the service",
        )


def _images(settings: Settings) -> Iterator[Fault]:
    if settings.container != "enroot":
        return
    try:
        missing = missing_files(containers.images_of(settings))
    except ImageError:
        return  # the checks between settings say so
    of_settings = {
        settings.server_image: SERVER_VARIABLE,
        settings.proxy_image: PROXY_VARIABLE,
    }
    for image, problem in missing.items():
        if image in of_settings:
            yield setting_fault(of_settings[image], image, f"is not there: {problem}")
        else:
            yield setting_fault(
                "PATHWAYS_IMAGE_DIR", str(settings.image_dir), f"won't do: {problem}"
            )


def _worker_ports(settings: Settings) -> Iterator[Fault]:
    if settings.scheduler != "local":
        return
    for index in range(settings.max_slices):
        for host in range(settings.topology.hosts):
            address = slice_node(settings.local_network, index, host).address
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


# The variables that each check depends on → the check.
_CHECKS: Mapping[tuple[str, ...], Callable[[Settings], Iterator[Fault]]] = {
    ("PATHWAYS_HOME", "PATHWAYS_NAME"): _home,
    ("GCS_BUCKET",): _scratch,
    ("PATHWAYS_RUNTIME", "PATHWAYS_CONTAINER", SERVER_VARIABLE): _emulator,
    ("PATHWAYS_RUNTIME", "PATHWAYS_CONTAINER"): _programs,
    ("PATHWAYS_CONTAINER",): _enroot,
    (
        "PATHWAYS_RUNTIME",
        "PATHWAYS_CONTAINER",
        SERVER_VARIABLE,
        PROXY_VARIABLE,
        "PATHWAYS_IMAGE_DIR",
    ): _images,
    (
        "PATHWAYS_SCHEDULER",
        "PATHWAYS_LOCAL_NETWORK",
        "PATHWAYS_WORKER_PORT",
        "TPU_TYPE",
        "SLICE_SHAPE",
        "PATHWAYS_CHIPS_PER_HOST",
        "MAX_SLICES",
    ): _worker_ports,
}
