# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""topology.py against the table of public slice shapes, and at its edges."""

import csv
import re
from math import prod
from pathlib import Path

import pytest

from pathways_slurm.topology import (
    TPU_TYPES,
    TopologyError,
    describe_valid_shapes,
    host_environment,
    parse_instance_type,
    parse_shape,
    slice_environment,
    topology_for,
    valid_shapes,
)

TABLE = Path(__file__).parents[2] / "data" / "tpu_topologies.csv"
TPU_TYPE_OF_GENERATION = {"v5litepod": "v5e"}


def rows() -> list[dict[str, str]]:
    with TABLE.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_table_is_whole() -> None:
    assert len(rows()) == 224


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row['machine_type']}-{row['topology']}")
def test_every_column_of_every_public_shape(row: dict[str, str]) -> None:
    tpu_type = TPU_TYPE_OF_GENERATION.get(row["gen"], row["gen"])
    # Only the 8-chip machine has to be named; the others are what a slice is made of anyway.
    chips_per_host = 8 if row["machine_type"].endswith("-8t") else None
    topology = topology_for(tpu_type, row["topology"], chips_per_host)
    environment = slice_environment(topology, num_slices=1, coordinator="rm")
    assert {
        "gen": topology.accelerator_type.rpartition("-")[0],
        "topology": topology.shape,
        "chips": str(topology.chips),
        "chips_per_host": str(topology.chips_per_host),
        "hosts": str(topology.hosts),
        "TPU_CHIPS_PER_HOST_BOUNDS": environment["TPU_CHIPS_PER_HOST_BOUNDS"],
        "TPU_HOST_BOUNDS": environment["TPU_HOST_BOUNDS"],
        "TPU_ACCELERATOR_TYPE": environment["TPU_ACCELERATOR_TYPE"],
        "pathways_instance_type": topology.instance_type,
        "TPU_TOPOLOGY_WRAP": environment["TPU_TOPOLOGY_WRAP"],
    } == {column: value for column, value in row.items() if column != "machine_type"}
    assert environment["TPU_TOPOLOGY"] == row["topology"]
    assert topology_for(tpu_type, row["topology"], int(row["chips_per_host"])) == topology
    assert parse_instance_type(row["pathways_instance_type"]) == topology
    assert row["topology"] in valid_shapes(tpu_type)


@pytest.mark.parametrize("tpu_type", TPU_TYPES)
def test_listed_shapes_are_exactly_the_accepted_ones(tpu_type: str) -> None:
    shapes = valid_shapes(tpu_type)
    assert len(set(shapes)) == len(shapes)
    sizes = [prod(parse_shape(shape)) for shape in shapes]
    assert sizes == sorted(sizes)
    for shape in shapes:
        topology = topology_for(tpu_type, shape)
        assert topology.hosts * topology.chips_per_host == topology.chips
        assert prod(topology.host_bounds) == topology.hosts
        assert parse_instance_type(topology.instance_type) == topology
    edges = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32)
    candidates = [(a, b) for a in edges for b in edges]
    candidates_3d = [(*pair, c) for pair in candidates for c in edges]
    accepted = []
    for dims in (*candidates, *candidates_3d):
        shape = "x".join(map(str, dims))
        try:
            topology_for(tpu_type, shape)
        except TopologyError:
            continue
        accepted.append(shape)
    within = [shape for shape in shapes if set(parse_shape(shape)) <= set(edges)]
    assert sorted(accepted) == sorted(within)


@pytest.mark.parametrize(
    ("tpu_type", "shape"),
    [
        ("v6e", "3x5"),
        ("v6e", "2x3x1"),
        ("v6e", "2x2x1"),
        ("v6e", "16x32"),
        ("v6e", "2x8"),
        ("v5e", "32x32"),
        ("v4", "1x1"),
        ("v4", "2x2"),
        ("v4", "2x3x1"),
        ("v4", "16x16x20"),
        ("v5p", "4x4x6"),
        ("v5p", "1x1x1"),
        ("v5p", "2x2x8"),
        ("v5p", "16x24x24"),
        ("tpu7x", "16x24x28"),
        ("tpu7x", "2x4"),
    ],
)
def test_a_shape_that_does_not_exist_is_refused_with_those_that_do(
    tpu_type: str, shape: str
) -> None:
    with pytest.raises(TopologyError) as caught:
        topology_for(tpu_type, shape)
    assert str(caught.value) == (
        f"{tpu_type} has no slice shape {shape}. "
        f"Valid shapes of {tpu_type}: {describe_valid_shapes(tpu_type)}"
    )


def test_the_phrase_of_valid_shapes() -> None:
    assert describe_valid_shapes("v6e") == "1x1, 2x2, 2x4, 4x4, 4x8, 8x8, 8x16, 16x16"
    assert describe_valid_shapes("v5p") == (
        "2x2x1, 2x2x2, 2x2x4, 2x4x4, and AxBxC with A <= B <= C, each a multiple of 4, "
        "and at most 8960 chips (4x4x4, 4x4x8, 4x4x12, 4x8x8, ...)"
    )


def test_a_shape_in_another_order_is_refused_with_the_right_one() -> None:
    with pytest.raises(TopologyError, match=re.escape("(did you mean 4x4x8?)")):
        topology_for("v5p", "8x4x4")
    with pytest.raises(TopologyError, match=re.escape("(did you mean 2x4?)")):
        topology_for("v6e", "4x2")


@pytest.mark.parametrize(
    "shape", ["", "2", "x", "2x", "2X4", "2x-4", "2x4x1x1", " 2x4", "2x4\n", "0x4", "02x4", "²x2"]
)
def test_what_is_no_shape_at_all_says_so(shape: str) -> None:
    with pytest.raises(TopologyError, match="not of the form AxB or AxBxC"):
        topology_for("v6e", shape)


@pytest.mark.parametrize("tpu_type", ["", "v7x", "V6E", "tpuv6e", "v5litepod"])
def test_an_unknown_type_is_refused_with_the_known_ones(tpu_type: str) -> None:
    with pytest.raises(TopologyError) as caught:
        topology_for(tpu_type, "2x4")
    assert str(caught.value) == (
        f"unknown TPU type {tpu_type!r}. Valid types: v4, v5e, v5p, v6e, tpu7x"
    )


@pytest.mark.parametrize(
    ("tpu_type", "shape", "chips_per_host", "valid"),
    [
        ("v6e", "4x4", 8, "4"),
        ("v6e", "2x4", 1, "4, 8"),
        ("v6e", "1x1", 4, "1"),
        ("v5p", "2x2x2", 8, "4"),
        ("v5e", "2x2", 0, "4"),
    ],
)
def test_hosts_that_do_not_make_up_the_shape_are_refused(
    tpu_type: str, shape: str, chips_per_host: int, valid: str
) -> None:
    with pytest.raises(TopologyError) as caught:
        topology_for(tpu_type, shape, chips_per_host)
    assert str(caught.value).endswith(f"Valid chips per host for {shape}: {valid}")


@pytest.mark.parametrize(
    "text", ["", "tpuv6e", "tpuv6e:", "v6e:2x4", "tpuv51t:2x2x1", "tpuv6e1t:4x4", ":2x4"]
)
def test_an_instance_type_that_does_not_exist_is_refused(text: str) -> None:
    with pytest.raises(TopologyError):
        parse_instance_type(text)


def test_the_environment_of_one_host_is_complete() -> None:
    assert host_environment(
        topology_for("v6e", "2x4"),
        host_index=1,
        node_addresses=["10.0.0.7", "10.0.0.9"],
        slice_index=2,
        num_slices=3,
        coordinator="10.0.0.1",
    ) == {
        "CHIPS_PER_HOST_BOUNDS": "2,2,1",
        "HOST_BOUNDS": "1,2,1",
        "MEGASCALE_COORDINATOR_ADDRESS": "10.0.0.1",
        "MEGASCALE_NUM_SLICES": "3",
        "MEGASCALE_SLICE_ID": "2",
        "PATHWAYS_BIND_ADDRESS": "10.0.0.9",
        "TPU_ACCELERATOR_TYPE": "v6e-8",
        "TPU_CHIPS_PER_HOST_BOUNDS": "2,2,1",
        "TPU_HOST_BOUNDS": "1,2,1",
        "TPU_RUNTIME_METRICS_PORTS": "8431,8432,8433,8434",
        "TPU_SKIP_MDS_QUERY": "true",
        "TPU_TOPOLOGY": "2x4",
        "TPU_TOPOLOGY_ALT": "false",
        "TPU_TOPOLOGY_WRAP": "false,false,false",
        "TPU_WORKER_HOSTNAMES": "10.0.0.7,10.0.0.9",
        "TPU_WORKER_ID": "1",
    }


@pytest.mark.parametrize(
    ("tpu_type", "shape", "resilient"),
    [("v5p", "4x4x4", True), ("v5p", "2x4x4", False), ("v6e", "16x16", False)],
)
def test_ici_resiliency_goes_with_closed_cubes(tpu_type: str, shape: str, resilient: bool) -> None:
    environment = slice_environment(topology_for(tpu_type, shape), num_slices=1, coordinator="rm")
    assert environment.get("ENABLE_ICI_RESILIENCY") == ("true" if resilient else None)


@pytest.mark.parametrize(
    ("host_index", "addresses", "slice_index"),
    [
        (2, ["a", "b"], 0),
        (-1, ["a", "b"], 0),
        (0, ["a"], 0),
        (0, ["a", "b"], 3),
        (0, ["a", "b"], -1),
    ],
)
def test_hosts_and_slices_out_of_range_are_refused(
    host_index: int, addresses: list[str], slice_index: int
) -> None:
    with pytest.raises(ValueError, match=r"addresses for the|is not in 0 \.\."):
        host_environment(
            topology_for("v6e", "2x4"),
            host_index=host_index,
            node_addresses=addresses,
            slice_index=slice_index,
            num_slices=3,
            coordinator="rm",
        )
