# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""A worker's own view of its place, from its environment, checked as a TPU runtime would suffer it.

On a real cluster a wrong or stale `TPU_*` or `MEGASCALE_*` variable makes start-up hang for minutes
without a word. The emulator refuses to start instead and names the variable.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod

from pathways_emulator import reading
from pathways_emulator.reading import Reader
from pathways_slurm import topology

_SCHEDULER_HINT = "the scheduler sets it for every task"
_HOST_HINT = "scripts/lib/worker_host.sh sets it on every host"
_SLICE_HINT = "the service sets it from TPU_TYPE, SLICE_SHAPE and MAX_SLICES"

_NO_NAMES: tuple[str, ...] = ()
_NO_NUMBERS: tuple[int, ...] = ()
_INDEX = partial(reading.integer, minimum=0)
_AT_LEAST_ONE = partial(reading.integer, minimum=1)


@dataclass(frozen=True, slots=True)
class Place:
    """Which part of the instance a worker is.

    Attributes:
        slice_index: 0 .. number of slices - 1.
        host_index: 0 .. hosts-1.
        hosts: Of the slice.
        incarnation: >= 1.
    """

    slice_index: int
    host_index: int
    hosts: int
    incarnation: int


def read(environment: Mapping[str, str], faults: list[str]) -> Place:
    """The worker's place; appends to `faults` whatever does not fit together.

    If there is any fault, the result must not be used.
    """
    reader = Reader(environment, faults)
    before = len(faults)
    addresses = reader.required(
        "PATHWAYS_NODE_ADDRESSES", reading.comma_list, _NO_NAMES, _SCHEDULER_HINT
    )
    names = reader.required("PATHWAYS_NODE_NAMES", reading.comma_list, _NO_NAMES, _SCHEDULER_HINT)
    place = Place(
        slice_index=reader.required("PATHWAYS_SLICE_INDEX", _INDEX, 0, _SCHEDULER_HINT),
        host_index=reader.required("PATHWAYS_HOST_INDEX", _INDEX, 0, _SCHEDULER_HINT),
        hosts=len(addresses),
        incarnation=reader.required("PATHWAYS_INCARNATION", _AT_LEAST_ONE, 1, _SCHEDULER_HINT),
    )
    if addresses and names and len(names) != len(addresses):
        reader.fault(
            "PATHWAYS_NODE_NAMES",
            f"has {len(names)} names, but PATHWAYS_NODE_ADDRESSES has {len(addresses)} addresses",
        )
    if addresses and place.host_index >= len(addresses):
        reader.fault(
            "PATHWAYS_HOST_INDEX",
            f"is {place.host_index}, but valid is 0 to {len(addresses) - 1} "
            "(PATHWAYS_NODE_ADDRESSES)",
        )
    # Without a place there is nothing to compare the rest with: only what is missing is told.
    known = place if len(faults) == before else None
    _check_host(reader, known, addresses, names)
    _check_slice(reader, known)
    return place


def _check_host(
    reader: Reader, place: Place | None, addresses: Sequence[str], names: Sequence[str]
) -> None:
    worker_id = reader.required("TPU_WORKER_ID", _INDEX, -1, _HOST_HINT)
    slice_id = reader.required("MEGASCALE_SLICE_ID", _INDEX, -1, _HOST_HINT)
    hostnames = reader.required("TPU_WORKER_HOSTNAMES", reading.comma_list, _NO_NAMES, _HOST_HINT)
    num_slices = reader.required("MEGASCALE_NUM_SLICES", _AT_LEAST_ONE, 0, _SLICE_HINT)
    reader.required("MEGASCALE_COORDINATOR_ADDRESS", str, "", _SLICE_HINT)
    if place is None:
        return
    if worker_id not in (-1, place.host_index):
        _mismatch(reader, "TPU_WORKER_ID", place.host_index, "PATHWAYS_HOST_INDEX")
    if slice_id not in (-1, place.slice_index):
        _mismatch(reader, "MEGASCALE_SLICE_ID", place.slice_index, "PATHWAYS_SLICE_INDEX")
    if hostnames and hostnames not in (tuple(addresses), tuple(names)):
        _mismatch(reader, "TPU_WORKER_HOSTNAMES", ",".join(addresses), "PATHWAYS_NODE_ADDRESSES")
    if 0 < num_slices <= place.slice_index:
        reader.fault(
            "MEGASCALE_NUM_SLICES",
            f"is {num_slices}, but PATHWAYS_SLICE_INDEX is {place.slice_index}; "
            f"expected at least {place.slice_index + 1}",
        )


def _check_slice(reader: Reader, place: Place | None) -> None:
    shape = reader.required("TPU_TOPOLOGY", topology.parse_shape, _NO_NUMBERS, _SLICE_HINT)
    chips = reader.required("TPU_CHIPS_PER_HOST_BOUNDS", _bounds, _NO_NUMBERS, _SLICE_HINT)
    hosts = reader.required("TPU_HOST_BOUNDS", _bounds, _NO_NUMBERS, _SLICE_HINT)
    reader.required("TPU_ACCELERATOR_TYPE", str, "", _SLICE_HINT)
    reader.required("TPU_SKIP_MDS_QUERY", reading.boolean, False, _SLICE_HINT)
    # Older libtpu versions read these; a stale one would win there.
    for name in ("CHIPS_PER_HOST_BOUNDS", "HOST_BOUNDS"):
        newer = reader.values.get(f"TPU_{name}")
        if name in reader.values and newer and reader.values[name] != newer:
            _mismatch(reader, name, newer, f"TPU_{name}")
    if shape and chips and hosts:
        padded = (*shape, 1, 1)[:3]
        covered = tuple(a * b for a, b in zip(chips, hosts, strict=True))
        if covered != padded:
            expected = ",".join(str(a // b or 1) for a, b in zip(padded, chips, strict=True))
            _mismatch(
                reader, "TPU_HOST_BOUNDS", expected, "TPU_TOPOLOGY / TPU_CHIPS_PER_HOST_BOUNDS"
            )
    if place is not None and hosts and prod(hosts) != place.hosts:
        reader.fault(
            "TPU_HOST_BOUNDS",
            f"is {reader.values['TPU_HOST_BOUNDS']!r}, {prod(hosts)} hosts, but "
            f"PATHWAYS_NODE_ADDRESSES has {place.hosts}",
        )


def _mismatch(reader: Reader, name: str, expected: object, source: str) -> None:
    reader.fault(name, f"is {reader.values[name]!r}, but expected is {expected} (from {source})")


def _bounds(text: str) -> tuple[int, ...]:
    expected = "expected three positive integers, such as 2,2,1"
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(expected) from None
    if len(numbers) != 3 or min(numbers) < 1:
        raise ValueError(expected)
    return numbers
