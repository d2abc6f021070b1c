# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
import pytest

from pathways_emulator import worker_environment
from pathways_emulator.worker_environment import Place
from pathways_slurm import topology

NODES = ("10.0.0.11", "10.0.0.12")


def environment(**overrides: str) -> dict[str, str]:
    """Of host 1 of slice 2, a v6e 2x4 of two hosts."""
    tpu = topology.host_environment(
        topology.topology_for("v6e", "2x4"),
        host_index=1,
        node_addresses=NODES,
        slice_index=2,
        num_slices=3,
        coordinator="10.0.0.2",
    )
    scheduler = {
        "PATHWAYS_SLICE_INDEX": "2",
        "PATHWAYS_HOST_INDEX": "1",
        "PATHWAYS_INCARNATION": "4",
        "PATHWAYS_NODE_NAMES": "node-a,node-b",
        "PATHWAYS_NODE_ADDRESSES": ",".join(NODES),
    }
    return tpu | scheduler | overrides


def faults_of(values: dict[str, str]) -> list[str]:
    faults: list[str] = []
    worker_environment.read(values, faults)
    return faults


def test_the_place() -> None:
    faults: list[str] = []
    place = worker_environment.read(environment(), faults)
    assert place == Place(slice_index=2, host_index=1, hosts=2, incarnation=4)
    assert not faults


@pytest.mark.parametrize(
    ("tpu_type", "shape", "chips_per_host"),
    [("v6e", "1x1", None), ("v6e", "2x4", 8), ("v5e", "4x8", None), ("v5p", "2x2x2", None)],
)
def test_every_kind_of_slice_passes(tpu_type: str, shape: str, chips_per_host: int | None) -> None:
    parsed = topology.topology_for(tpu_type, shape, chips_per_host)
    nodes = [f"10.0.0.{host}" for host in range(parsed.hosts)]
    values = topology.host_environment(
        parsed,
        host_index=0,
        node_addresses=nodes,
        slice_index=0,
        num_slices=1,
        coordinator="10.0.1.1",
    )
    scheduler = {
        "PATHWAYS_SLICE_INDEX": "0",
        "PATHWAYS_HOST_INDEX": "0",
        "PATHWAYS_INCARNATION": "1",
        "PATHWAYS_NODE_NAMES": ",".join(nodes),
        "PATHWAYS_NODE_ADDRESSES": ",".join(nodes),
    }
    assert faults_of(values | scheduler) == []


@pytest.mark.parametrize(
    "name",
    sorted(
        set(environment())
        - {
            # Ours alone, or of no meaning for the emulator, or older names.
            "PATHWAYS_BIND_ADDRESS",
            "TPU_RUNTIME_METRICS_PORTS",
            "TPU_TOPOLOGY_ALT",
            "TPU_TOPOLOGY_WRAP",
            "CHIPS_PER_HOST_BOUNDS",
            "HOST_BOUNDS",
        }
    ),
)
def test_a_missing_variable_is_named(name: str) -> None:
    values = environment()
    del values[name]
    faults = faults_of(values)
    assert len(faults) == 1
    assert faults[0].startswith(f"{name}: missing; ")


def test_all_missing_variables_are_named_at_once() -> None:
    assert len(faults_of({})) == 15


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("TPU_WORKER_ID", "0", "is '0', but expected is 1 (from PATHWAYS_HOST_INDEX)"),
        ("MEGASCALE_SLICE_ID", "0", "is '0', but expected is 2 (from PATHWAYS_SLICE_INDEX)"),
        ("MEGASCALE_NUM_SLICES", "2", "is 2, but PATHWAYS_SLICE_INDEX is 2"),
        ("TPU_WORKER_HOSTNAMES", "a,b", "is 'a,b', but expected is 10.0.0.11,10.0.0.12"),
        ("TPU_HOST_BOUNDS", "1,1,1", "is '1,1,1', but expected is 1,2,1"),
        ("TPU_HOST_BOUNDS", "2,1", "expected three positive integers"),
        ("HOST_BOUNDS", "1,1,1", "is '1,1,1', but expected is 1,2,1 (from TPU_HOST_BOUNDS)"),
        ("PATHWAYS_HOST_INDEX", "2", "is 2, but valid is 0 to 1"),
        ("PATHWAYS_NODE_NAMES", "a", "has 1 names, but PATHWAYS_NODE_ADDRESSES has 2"),
        ("PATHWAYS_NODE_ADDRESSES", "a,,b", "expected a comma list without empty items"),
        ("PATHWAYS_INCARNATION", "0", "expected an integer, >= 1"),
    ],
)
def test_what_does_not_fit_is_named_with_value_and_expectation(
    name: str, value: str, fault: str
) -> None:
    faults = faults_of(environment(**{name: value}))
    assert any(found.startswith(f"{name}: ") and fault in found for found in faults)


def test_names_of_nodes_are_host_names_too() -> None:
    assert faults_of(environment(TPU_WORKER_HOSTNAMES="node-a,node-b")) == []
