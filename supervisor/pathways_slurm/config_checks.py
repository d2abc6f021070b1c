# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What can be wrong between settings that are each right."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from difflib import get_close_matches
from typing import TYPE_CHECKING

from pathways_slurm import containers
from pathways_slurm.images import PROXY_VARIABLE, SERVER_VARIABLE, ImageError
from pathways_slurm.jax_version import release
from pathways_slurm.topology import (
    TopologyError,
    describe_valid_shapes,
    topology_for,
    valid_chips_per_host,
)

if TYPE_CHECKING:
    from pathways_slurm.config import Settings

# (variable, problem, valid values if the setting's own are too wide)
Finding = tuple[str, str, str | None]

# Slices, and hosts of a slice, that have an address in the local scheduler's network.
_LOCAL_MOST = 254

# Variables that begin like a setting and are none: what a component or a job of a service sees.
_OTHER_VARIABLES = frozenset(
    {
        "PATHWAYS_BIND_ADDRESS",
        "PATHWAYS_CONTAINER_EPILOG",
        "PATHWAYS_HOST_INDEX",
        "PATHWAYS_INCARNATION",
        "PATHWAYS_JAX_VERSION",
        "PATHWAYS_MAX_SLICES",
        "PATHWAYS_MIN_SLICES",
        "PATHWAYS_NODE_ADDRESSES",
        "PATHWAYS_NODE_NAMES",
        "PATHWAYS_ORDERS_FILE",
        "PATHWAYS_REPORT_FILE",
        "PATHWAYS_RM_ADDRESS",
        "PATHWAYS_RUN_ID",
        "PATHWAYS_SLICE_INDEX",
        "PATHWAYS_SLICE_SHAPE",
        "PATHWAYS_TPU_TYPE",
    }
)


def check_between(settings: "Settings", at_fault: Set[str]) -> Iterator[Finding]:
    """Everything wrong between settings, but for checks that look at a variable in ``at_fault``."""
    for variables, check in _CHECKS.items():
        if at_fault.isdisjoint(variables):
            yield from check(settings)


def misspelled(environ: Iterable[str], names: Iterable[str]) -> dict[str, str]:
    """Variables that are close to one of ``names`` without being it or another known one."""
    names = list(names)
    found = {}
    for variable in sorted(environ):
        if variable in names or variable in _OTHER_VARIABLES:
            continue
        close = get_close_matches(variable.upper(), names, n=1, cutoff=0.85)
        if close:
            found[variable] = close[0]
    return found


def _slices(settings: "Settings") -> Iterator[Finding]:
    if settings.min_slices > settings.max_slices:
        yield (
            "MIN_SLICES",
            f"is more than MAX_SLICES={settings.max_slices}",
            f"a whole number from 1 to {settings.max_slices}",
        )


def _shape(settings: "Settings") -> Iterator[Finding]:
    try:
        topology_for(settings.tpu_type, settings.slice_shape)
    except TopologyError:
        yield (
            "SLICE_SHAPE",
            f"is no slice shape of TPU_TYPE={settings.tpu_type}",
            describe_valid_shapes(settings.tpu_type),
        )


def _chips_per_host(settings: "Settings") -> Iterator[Finding]:
    if settings.chips_per_host is None:
        return
    try:
        valid = valid_chips_per_host(settings.tpu_type, settings.slice_shape)
    except TopologyError:
        return  # _shape says so
    if settings.chips_per_host not in valid:
        yield (
            "PATHWAYS_CHIPS_PER_HOST",
            f"is no host machine of a {settings.tpu_type} slice of {settings.slice_shape}",
            " or ".join(map(str, valid)),
        )


def _ports(settings: "Settings") -> Iterator[Finding]:
    # Resource manager and proxy share an address. Workers have addresses of their own.
    if settings.rm_port == settings.proxy_port:
        yield (
            "PATHWAYS_RM_PORT",
            "is the port of the proxy on the same address",
            f"a port from 1 to 65535 other than PATHWAYS_PROXY_PORT={settings.proxy_port}",
        )


def _lease(settings: "Settings") -> Iterator[Finding]:
    # A worker hears of the resource manager five times in each heartbeat timeout.
    least_s = settings.heartbeat_timeout_s / 2
    if settings.lease_s < least_s:
        yield (
            "PATHWAYS_LEASE_S",
            f"is less than half of PATHWAYS_HEARTBEAT_TIMEOUT_S={settings.heartbeat_timeout_s:g}: "
            "healthy workers would end themselves between two heartbeats",
            f"seconds from {least_s:g} to 3600",
        )


def _local_slices(settings: "Settings") -> Iterator[Finding]:
    if settings.scheduler == "local" and settings.max_slices > _LOCAL_MOST:
        yield (
            "MAX_SLICES",
            "does not fit PATHWAYS_LOCAL_NETWORK",
            f"a whole number from 1 to {_LOCAL_MOST} with PATHWAYS_SCHEDULER=local",
        )


def _local_hosts(settings: "Settings") -> Iterator[Finding]:
    if settings.scheduler != "local":
        return
    try:
        topology = topology_for(settings.tpu_type, settings.slice_shape, settings.chips_per_host)
    except TopologyError:
        return  # _shape or _chips_per_host says so
    if topology.hosts > _LOCAL_MOST:
        yield (
            "SLICE_SHAPE",
            f"has {topology.hosts} hosts, which do not fit PATHWAYS_LOCAL_NETWORK",
            f"a shape of at most {_LOCAL_MOST} hosts with PATHWAYS_SCHEDULER=local",
        )


def _container(settings: "Settings") -> Iterator[Finding]:
    if settings.runtime == "pathways" and settings.container != "enroot":
        yield "PATHWAYS_CONTAINER", "does not go with PATHWAYS_RUNTIME=pathways", "enroot"


def _images(settings: "Settings") -> Iterator[Finding]:
    if settings.container != "enroot":
        return
    try:
        containers.images_of(settings)
    except ImageError as error:
        yield "PATHWAYS_RUNTIME", f"can't be served: {error}", None
        return
    installed = containers.installed_jax()
    for variable, image in (
        (SERVER_VARIABLE, settings.server_image),
        (PROXY_VARIABLE, settings.proxy_image),
    ):
        stated = containers.stated_jax(image)
        if stated is not None and release(stated) != release(installed or ""):
            yield (
                variable,
                f"is for JAX {stated}, and the environment has JAX {installed}",
                f"an image for JAX {installed}",
            )


def _mounts(settings: "Settings") -> Iterator[Finding]:
    """Enroot takes no other paths."""
    if settings.container != "enroot":
        return
    mounted = {"PATHWAYS_HOME": settings.paths.directory, "GCS_BUCKET": settings.scratch_dir}
    for variable, path in mounted.items():
        if path is not None and re.search(r"[\s:]", str(path)):
            yield (
                variable,
                "has a space or a colon, so it can't be shown in a container",
                "an absolute directory without spaces and colons",
            )


# The variables that each check looks at → the check.
_CHECKS: Mapping[tuple[str, ...], Callable[["Settings"], Iterator[Finding]]] = {
    ("MIN_SLICES", "MAX_SLICES"): _slices,
    ("TPU_TYPE", "SLICE_SHAPE"): _shape,
    ("TPU_TYPE", "SLICE_SHAPE", "PATHWAYS_CHIPS_PER_HOST"): _chips_per_host,
    ("PATHWAYS_RM_PORT", "PATHWAYS_PROXY_PORT"): _ports,
    ("PATHWAYS_LEASE_S", "PATHWAYS_HEARTBEAT_TIMEOUT_S"): _lease,
    ("PATHWAYS_SCHEDULER", "MAX_SLICES"): _local_slices,
    ("PATHWAYS_SCHEDULER", "TPU_TYPE", "SLICE_SHAPE", "PATHWAYS_CHIPS_PER_HOST"): _local_hosts,
    ("PATHWAYS_RUNTIME", "PATHWAYS_CONTAINER"): _container,
    (
        "PATHWAYS_RUNTIME",
        "PATHWAYS_CONTAINER",
        SERVER_VARIABLE,
        PROXY_VARIABLE,
        "PATHWAYS_IMAGE_DIR",
    ): _images,
    ("PATHWAYS_CONTAINER", "PATHWAYS_HOME", "PATHWAYS_NAME", "GCS_BUCKET"): _mounts,
}
