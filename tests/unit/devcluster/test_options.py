# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What a cluster can be asked to be."""

import itertools
from ipaddress import IPv4Network
from pathlib import Path

import pytest
from slurm.devcluster import links
from slurm.devcluster.addresses import AddressError, controller_port, reserved, reserved_private
from slurm.devcluster.options import (
    MAX_NODES,
    Node,
    Options,
    network_number,
    nodes_of,
    private_network,
)

# Of these tests alone.
NETWORK = "127.58.0.0/16"


def test_the_defaults_are_valid() -> None:
    assert Options(Path("/tmp/dev")).faults() == []


def test_all_faults_come_at_once_with_values_and_what_is_valid() -> None:
    faults = Options(
        Path("/tmp/a b"),
        slices=0,
        chips_per_host=9,
        cred_expire_s=3,
        tpu_type="v7",
        network="10.0.0.0/8",
    ).faults()
    assert faults == [
        "--dir '/tmp/a b' can't be named in Slurm's configuration; "
        "valid: an absolute path of letters, digits and . _ + - only",
        "--slices 0 is out of range; valid: 1 to 69",
        "--chips-per-host 9 is out of range; valid: 1 to 8",
        "--cred-expire 3 is out of range; valid: 5 to 86400",
        "--tpu-type 'v7' is unknown; valid: v4, v5e, v5p, v6e, tpu7x",
        "--network '10.0.0.0/8' is none; valid: 127.X.0.0/16 with X from 1 to 254",
    ]


def test_a_directory_too_long_for_sockets_is_refused() -> None:
    longest = Path("/" + "d" * 56)
    assert Options(longest).faults() == []
    (fault,) = Options(Path(f"{longest}d")).faults()
    assert "58 characters" in fault
    assert "up to 57" in fault


def test_nodes_together_are_bounded() -> None:
    assert Options(Path("/d"), slices=34, hosts_per_slice=2, cpu_nodes=1).faults() == []
    (fault,) = Options(Path("/d"), slices=34, hosts_per_slice=2, cpu_nodes=2).faults()
    assert f"70 nodes; valid: up to {MAX_NODES}" in fault


def test_every_node_has_an_address_and_a_port_of_its_own() -> None:
    assert nodes_of(Options(Path("/d"), slices=2, hosts_per_slice=2), NETWORK, 100) == (
        Node("cpu0", "127.58.0.1", 100, None),
        Node("tpu-0-0", "127.58.1.1", 101, 0),
        Node("tpu-0-1", "127.58.1.2", 102, 0),
        Node("tpu-1-0", "127.58.2.1", 103, 1),
        Node("tpu-1-1", "127.58.2.2", 104, 1),
    )


def test_nodes_that_are_machines_share_a_port_and_leave_the_host_an_address() -> None:
    options = Options(Path("/d"), slices=2, hosts_per_slice=1, namespaces=True)
    assert nodes_of(options, "10.203.7.0/24", 6818) == (
        Node("cpu0", "10.203.7.2", 6818, None),
        Node("tpu-0-0", "10.203.7.3", 6818, 0),
        Node("tpu-1-0", "10.203.7.4", 6818, 1),
    )


@pytest.mark.parametrize(
    ("network", "valid"),
    [
        ("10.203.5.0/24", True),
        ("172.31.0.0/24", True),
        ("192.168.1.0/24", True),
        ("172.32.0.0/24", False),
        ("10.0.0.0/8", False),
        ("10.203.5.1/24", False),
        ("127.5.0.0/24", False),
        ("nonsense", False),
    ],
)
def test_networks_of_namespaces_are_private(network: str, valid: bool) -> None:
    assert (private_network(network) is not None) == valid
    faults = Options(Path("/d"), network=network, namespaces=True).faults()
    told = f"--network {network!r} is none for namespaces; valid: a private /24 such as "
    assert [fault.startswith(told) for fault in faults] == ([] if valid else [True])


@pytest.mark.parametrize(
    ("network", "number"),
    [
        ("127.1.0.0/16", 1),
        ("127.254.0.0/16", 254),
        ("127.0.0.0/16", None),
        ("127.255.0.0/16", None),
        ("127.5.0.0/24", None),
        ("127.5.1.0/16", None),
        ("nonsense", None),
    ],
)
def test_networks(network: str, number: int | None) -> None:
    assert network_number(network) == number


def test_networks_share_no_ports() -> None:
    ports = [controller_port(f"127.{number}.0.0/16") for number in range(1, 255)]
    assert all(b - a > MAX_NODES + 1 for a, b in itertools.pairwise(ports))
    # Below the services' own ports and those that the kernel hands out.
    assert ports[-1] + MAX_NODES + 1 < 28999


def test_a_network_is_kept_while_a_cluster_comes_up() -> None:
    with reserved(NETWORK, 3) as addresses:
        assert addresses.network == NETWORK
        with pytest.raises(AddressError, match=r"127\.58\.0\.0/16 can't be used.*EADDRINUSE"):
            reserved(NETWORK, 3).__enter__()
    with reserved(NETWORK, 3):
        pass


def test_without_one_asked_for_each_gets_another() -> None:
    with reserved(None, 3) as one, reserved(None, 3) as other:
        assert one.network != other.network
        assert one.controller_port != other.controller_port


def test_a_network_of_namespaces_overlaps_none_that_this_machine_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # All of 10.203.0.0/16 but its last /24.
    used = [*IPv4Network("10.203.0.0/16").address_exclude(IPv4Network("10.203.255.0/24"))]
    monkeypatch.setattr(links, "used_networks", lambda: used)
    with reserved_private(None) as addresses:
        assert (addresses.network, addresses.controller_port) == ("10.203.255.0/24", 6817)
    with reserved_private("192.168.9.0/24") as addresses:
        assert addresses.network == "192.168.9.0/24"
    told = r"--network 10\.203\.1\.0/24 is in use: it overlaps 10\.203\.0\.0/17; "
    with pytest.raises(AddressError, match=told):
        reserved_private("10.203.1.0/24").__enter__()
