# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The shape of a TPU slice, and what its hosts must be told about it.

Pure: everything follows from the TPU type, the shape, and the chips of one host machine. The shapes
and the pod sizes are those of Cloud TPU's public pages, one per generation, and of its page on
types and topologies, which has the rule for large 3-D shapes: A <= B <= C, each a multiple of 4.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from types import MappingProxyType
from typing import Literal

# First of the ports on which libtpu serves its metrics, one port per chip of the host.
_FIRST_METRICS_PORT = 8431

# How the chips of one host are laid out, by their number.
_CHIPS_PER_HOST_BOUNDS: Mapping[int, tuple[int, int, int]] = MappingProxyType(
    {1: (1, 1, 1), 2: (1, 2, 1), 4: (2, 2, 1), 8: (2, 4, 1)}
)

_SHAPES_2D = ((1, 1), (2, 2), (2, 4), (4, 4), (4, 8), (8, 8), (8, 16), (16, 16))

# 3-D slices smaller than a cube of 4x4x4; larger ones are made of such cubes.
_SHAPES_3D_BELOW_A_CUBE = ((2, 2, 1), (2, 2, 2), (2, 2, 4), (2, 4, 4))
_CUBE_EDGE = 4


class TopologyError(ValueError):
    """The TPU type, shape or host machine does not exist; the message lists those that do."""


@dataclass(frozen=True, slots=True)
class _Generation:
    """What is particular to one TPU type.

    Attributes:
        accelerator: First part of the accelerator type, as in ``v5litepod-16``.
        instance_prefix: First part of Pathways' instance type, as in ``tpuv5:2x2x1``.
        dimensions: Of a slice's shape.
        cores_per_chip: By which the accelerator type counts.
        pod_chips: Chips of a pod, which no slice can exceed.
    """

    accelerator: str
    instance_prefix: str
    dimensions: Literal[2, 3]
    cores_per_chip: int
    pod_chips: int


_GENERATIONS: Mapping[str, _Generation] = MappingProxyType(
    {
        "v4": _Generation("v4", "tpuv4", 3, 2, 4096),
        "v5e": _Generation("v5litepod", "tpuv5e", 2, 1, 256),
        "v5p": _Generation("v5p", "tpuv5", 3, 2, 8960),
        "v6e": _Generation("v6e", "tpuv6e", 2, 1, 256),
        "tpu7x": _Generation("tpu7x", "tpu7x", 3, 2, 9216),
    }
)

TPU_TYPES = tuple(_GENERATIONS)

# Appended to the instance prefix of 2-D types for a slice that is one 8-chip host.
_ONE_HOST_SUFFIX = "1t"


@dataclass(frozen=True, slots=True)
class Topology:
    """A valid slice shape. Make one with :func:`topology_for`.

    Attributes:
        tpu_type: One of ``TPU_TYPES``.
        shape: As users write it, such as ``2x4`` or ``2x2x1``.
        dims: The same as numbers, two or three.
        chips: Of the whole slice.
        chips_per_host: Of each host.
        hosts: Of the slice; ``chips / chips_per_host``.
        chips_per_host_bounds: Layout of a host's chips, always three numbers.
        host_bounds: Layout of the hosts, always three numbers.
        accelerator_type: Generation and cores, such as ``v5p-16``.
        instance_type: Pathways' word, such as ``tpuv6e:2x4``.
        wrap: Whether each of three dimensions is closed to a ring.
    """

    tpu_type: str
    shape: str
    dims: tuple[int, ...]
    chips: int
    chips_per_host: int
    hosts: int
    chips_per_host_bounds: tuple[int, int, int]
    host_bounds: tuple[int, int, int]
    accelerator_type: str
    instance_type: str
    wrap: tuple[bool, bool, bool]


def parse_shape(shape: str) -> tuple[int, ...]:
    """Reads ``2x4`` as (2, 4), and ``2x2x1`` as (2, 2, 1).

    Raises:
        TopologyError: It is not two or three positive numbers joined by ``x``.
    """
    if not re.fullmatch(r"[1-9][0-9]{0,3}(x[1-9][0-9]{0,3}){1,2}", shape):
        raise TopologyError(
            f"slice shape {shape!r} is not of the form AxB or AxBxC with positive whole numbers, "
            "such as 2x4 (v5e, v6e) or 2x2x1 (v4, v5p, tpu7x)"
        )
    return tuple(int(part) for part in shape.split("x"))


def valid_shapes(tpu_type: str) -> tuple[str, ...]:
    """Every shape of this type, smallest first; hundreds of them for the 3-D types.

    Raises:
        TopologyError: There is no such TPU type.
    """
    return tuple(_join(dims, "x") for dims in _valid_dims(_generation(tpu_type)))


def describe_valid_shapes(tpu_type: str) -> str:
    """The shapes of this type in a phrase that fits an error message.

    Raises:
        TopologyError: There is no such TPU type.
    """
    generation = _generation(tpu_type)
    if generation.dimensions == 2:
        return ", ".join(valid_shapes(tpu_type))
    shapes = valid_shapes(tpu_type)
    small, cubes = len(_SHAPES_3D_BELOW_A_CUBE), 4
    return (
        f"{', '.join(shapes[:small])}, and AxBxC with A <= B <= C, each a multiple of "
        f"{_CUBE_EDGE}, and at most {generation.pod_chips} chips "
        f"({', '.join(shapes[small : small + cubes])}, ...)"
    )


def valid_chips_per_host(tpu_type: str, shape: str) -> tuple[int, ...]:
    """Chips of the host machines that a slice can be made of, the usual machine first.

    Raises:
        TopologyError: There is no such TPU type, or it has no such shape.
    """
    generation = _generation(tpu_type)
    return _machines(_checked_dims(tpu_type, generation, shape), generation)


def topology_for(tpu_type: str, shape: str, chips_per_host: int | None = None) -> Topology:
    """The topology of a slice.

    Args:
        tpu_type: One of ``TPU_TYPES``.
        shape: Such as ``2x4``.
        chips_per_host: Chips of one host machine. None takes the machine that multi-host slices
            are made of: 4 chips, or 1 for the shape 1x1. On v5e and v6e, 8 makes the shape 2x4 one
            host instead of two.

    Raises:
        TopologyError: Type, shape or machine does not exist, or they do not go together.
    """
    generation = _generation(tpu_type)
    dims = _checked_dims(tpu_type, generation, shape)
    machines = _machines(dims, generation)
    per_host = machines[0] if chips_per_host is None else chips_per_host
    if per_host not in machines:
        raise TopologyError(
            f"no {tpu_type} slice of shape {shape} is made of hosts with {per_host} chips. "
            f"Valid chips per host for {shape}: {', '.join(map(str, machines))}"
        )
    return _build(tpu_type, dims, per_host)


def parse_instance_type(instance_type: str) -> Topology:
    """Reads Pathways' ``--instance_type``, such as ``tpuv6e:2x4`` or ``tpuv6e1t:2x4``.

    The inverse of :attr:`Topology.instance_type`.

    Raises:
        TopologyError: The prefix is unknown, or the shape is not one of its type.
    """
    prefix, colon, shape = instance_type.partition(":")
    prefixes = _instance_prefixes()
    if not colon or prefix not in prefixes:
        raise TopologyError(
            f"instance type {instance_type!r} is not of the form PREFIX:SHAPE, such as "
            f"tpuv6e:2x4. Valid prefixes: {', '.join(prefixes)}"
        )
    tpu_type, chips_per_host = prefixes[prefix]
    return topology_for(tpu_type, shape, chips_per_host)


def slice_environment(topology: Topology, *, num_slices: int, coordinator: str) -> dict[str, str]:
    """The part of a worker's environment that is the same on every host of every slice.

    Args:
        topology: Of each slice.
        num_slices: Slices that the service may have, not those that run now.
        coordinator: Host name or address of the resource manager, without a port.
    """
    chips_per_host_bounds = _join(topology.chips_per_host_bounds, ",")
    host_bounds = _join(topology.host_bounds, ",")
    ports = range(_FIRST_METRICS_PORT, _FIRST_METRICS_PORT + topology.chips_per_host)
    environment = {
        "TPU_ACCELERATOR_TYPE": topology.accelerator_type,
        "TPU_CHIPS_PER_HOST_BOUNDS": chips_per_host_bounds,
        "TPU_HOST_BOUNDS": host_bounds,
        "TPU_RUNTIME_METRICS_PORTS": _join(ports, ","),
        "TPU_SKIP_MDS_QUERY": "true",
        "TPU_TOPOLOGY": topology.shape,
        "TPU_TOPOLOGY_ALT": "false",
        "TPU_TOPOLOGY_WRAP": _join((str(closed).lower() for closed in topology.wrap), ","),
        # The names that older libtpu versions read.
        "CHIPS_PER_HOST_BOUNDS": chips_per_host_bounds,
        "HOST_BOUNDS": host_bounds,
        "MEGASCALE_COORDINATOR_ADDRESS": coordinator,
        "MEGASCALE_NUM_SLICES": str(num_slices),
    }
    if all(topology.wrap):
        environment["ENABLE_ICI_RESILIENCY"] = "true"
    return environment


def host_environment(
    topology: Topology,
    *,
    host_index: int,
    node_addresses: Sequence[str],
    slice_index: int,
    num_slices: int,
    coordinator: str,
) -> dict[str, str]:
    """The whole TPU environment of one host: the slice's part and the host's own.

    ``scripts/lib/worker_host.sh`` computes the host's own part where a task runs; the two agree.

    Args:
        topology: Of each slice.
        host_index: 0 .. hosts-1, in the slice's node order.
        node_addresses: Of all hosts of the slice, in node order. Addresses and not names, because
            the names of a cluster's nodes need not resolve.
        slice_index: 0 .. num_slices-1.
        num_slices: Slices that the service may have.
        coordinator: Host name or address of the resource manager, without a port.

    Raises:
        ValueError: An index is out of range, or there is not one address per host.
    """
    if len(node_addresses) != topology.hosts:
        raise ValueError(
            f"{len(node_addresses)} addresses for the {topology.hosts} hosts of {topology.shape}"
        )
    if not 0 <= host_index < topology.hosts:
        raise ValueError(f"host index {host_index} is not in 0 .. {topology.hosts - 1}")
    if not 0 <= slice_index < num_slices:
        raise ValueError(f"slice index {slice_index} is not in 0 .. {num_slices - 1}")
    return slice_environment(topology, num_slices=num_slices, coordinator=coordinator) | {
        "MEGASCALE_SLICE_ID": str(slice_index),
        "PATHWAYS_BIND_ADDRESS": node_addresses[host_index],
        "TPU_WORKER_HOSTNAMES": ",".join(node_addresses),
        "TPU_WORKER_ID": str(host_index),
    }


def _generation(tpu_type: str) -> _Generation:
    try:
        return _GENERATIONS[tpu_type]
    except KeyError:
        raise TopologyError(
            f"unknown TPU type {tpu_type!r}. Valid types: {', '.join(TPU_TYPES)}"
        ) from None


def _checked_dims(tpu_type: str, generation: _Generation, shape: str) -> tuple[int, ...]:
    dims = parse_shape(shape)
    if not _is_valid(dims, generation):
        ordered = tuple(sorted(dims))
        hint = f" (did you mean {_join(ordered, 'x')}?)" if _is_valid(ordered, generation) else ""
        raise TopologyError(
            f"{tpu_type} has no slice shape {shape}{hint}. "
            f"Valid shapes of {tpu_type}: {describe_valid_shapes(tpu_type)}"
        )
    return dims


def _is_valid(dims: tuple[int, ...], generation: _Generation) -> bool:
    if generation.dimensions == 2:
        return dims in _SHAPES_2D
    if dims in _SHAPES_3D_BELOW_A_CUBE:
        return True
    return (
        len(dims) == 3
        and dims == tuple(sorted(dims))
        and all(edge % _CUBE_EDGE == 0 for edge in dims)
        and prod(dims) <= generation.pod_chips
    )


@cache
def _valid_dims(generation: _Generation) -> tuple[tuple[int, ...], ...]:
    if generation.dimensions == 2:
        return _SHAPES_2D
    pod = generation.pod_chips
    cubes = [
        (a, b, c)
        for a in range(_CUBE_EDGE, pod, _CUBE_EDGE)
        if a**3 <= pod
        for b in range(a, pod // a, _CUBE_EDGE)
        for c in range(b, pod // (a * b) + 1, _CUBE_EDGE)
    ]
    # Of equal sizes the one most like a cube first: the usual choice.
    return (*_SHAPES_3D_BELOW_A_CUBE, *sorted(cubes, key=lambda dims: (prod(dims), dims[2])))


def _machines(dims: tuple[int, ...], generation: _Generation) -> tuple[int, ...]:
    """See :func:`valid_chips_per_host`."""
    if dims == (1, 1):
        return (1,)
    if generation.dimensions == 2 and dims == (2, 4):
        return (4, 8)
    return (4,)


def _build(tpu_type: str, dims: tuple[int, ...], chips_per_host: int) -> Topology:
    generation = _GENERATIONS[tpu_type]
    shape = _join(dims, "x")
    chips = prod(dims)
    a, b, c = dims if len(dims) == 3 else (*dims, 1)
    bounds = _CHIPS_PER_HOST_BOUNDS[chips_per_host]
    if generation.dimensions == 2:
        # A 2-D pod is 16x16: only a side that spans it is closed to a ring.
        wrap = (a == 16, b == 16, False)
    else:
        closed = min(dims) >= _CUBE_EDGE
        wrap = (closed, closed, closed)
    one_host = _ONE_HOST_SUFFIX if chips_per_host == 8 else ""
    return Topology(
        tpu_type=tpu_type,
        shape=shape,
        dims=dims,
        chips=chips,
        chips_per_host=chips_per_host,
        hosts=chips // chips_per_host,
        chips_per_host_bounds=bounds,
        host_bounds=(a // bounds[0], b // bounds[1], c // bounds[2]),
        accelerator_type=f"{generation.accelerator}-{chips * generation.cores_per_chip}",
        instance_type=f"{generation.instance_prefix}{one_host}:{shape}",
        wrap=wrap,
    )


def _instance_prefixes() -> dict[str, tuple[str, int | None]]:
    """Prefix of an instance type → TPU type and chips per host."""
    prefixes: dict[str, tuple[str, int | None]] = {}
    for tpu_type, generation in _GENERATIONS.items():
        prefixes[generation.instance_prefix] = (tpu_type, None)
        if generation.dimensions == 2:
            prefixes[generation.instance_prefix + _ONE_HOST_SUFFIX] = (tpu_type, 8)
    return prefixes


def _join(parts: Iterable[object], separator: str) -> str:
    return separator.join(str(part) for part in parts)
