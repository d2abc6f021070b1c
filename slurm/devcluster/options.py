# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What a devcluster can be asked to be. Pure."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path

from pathways_slurm.topology import TPU_TYPES

# Each node has a port of its own; addresses.py has a block of this many for each network.
MAX_NODES = 69

# The daemons' sockets are below the directory, and the kernel takes no longer name for one than 107
# bytes. The longest is that of a job step, here with the greatest job id and step id.
_MAX_DIRECTORY_LENGTH = 107 - len("/nodes/tpu-68-0/spool/tpu-68-0_67043328.4294967291")

# Slurm reads its configuration as words: no quoting holds everywhere a path may stand.
_PLAIN_PATH = re.compile(r"/[A-Za-z0-9._/+-]*")

_MIN_CRED_EXPIRE_S = 5  # slurmctld refuses less


class OptionsError(Exception):
    """The cluster can't be started as asked for; ``faults`` says all that is wrong."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = tuple(faults)


@dataclass(frozen=True, slots=True)
class Options:
    """A cluster of ``cpu_nodes`` CPU nodes and ``slices`` TPU slices.

    Attributes:
        directory: Of everything that belongs to the cluster; made with mode 0700, or with 0711 if
            the cluster is one of ``namespaces``, where each file has the mode it needs.
        slices: TPU slices.
        hosts_per_slice: Nodes of each.
        cpu_nodes: Nodes without a TPU.
        tpu_type: Type of the fake ``tpu`` gres.
        chips_per_host: Its count on each node.
        cred_expire_s: Life of a job credential; as long does a requeued task wait.
        grace_time_s: From the preemption of a job of tpu-low to its end.
        kill_wait_s: From SIGTERM to SIGKILL at a job's end.
        min_job_age_s: For how long an ended job is remembered at least; at most a minute longer.
        network: 127.X.0.0/16 for the nodes' addresses, with ``namespaces`` a private /24; None: one
            that is free.
        root_switch: Whether a switch connects the slices, so that a job can span them.
        namespaces: Whether each node is a machine of its own, made of namespaces, and the cluster
            one for all users. Takes root.
    """

    directory: Path
    slices: int = 3
    hosts_per_slice: int = 2
    cpu_nodes: int = 1
    tpu_type: str = "v6e"
    chips_per_host: int = 4
    cred_expire_s: int = 120
    grace_time_s: int = 0
    kill_wait_s: int = 30
    min_job_age_s: int = 600
    network: str | None = None
    root_switch: bool = False
    namespaces: bool = False

    def faults(self) -> list[str]:
        """Everything that is wrong with them, each with the value seen and what is valid."""
        return list(self._faults())

    def _faults(self) -> Iterator[str]:
        path = str(self.directory)
        if not _PLAIN_PATH.fullmatch(path) or ".." in self.directory.parts:
            yield (
                f"--dir {path!r} can't be named in Slurm's configuration; "
                "valid: an absolute path of letters, digits and . _ + - only"
            )
        if len(path) > _MAX_DIRECTORY_LENGTH:
            yield (
                f"--dir {path} has {len(path)} characters, too many for the sockets below it; "
                f"valid: up to {_MAX_DIRECTORY_LENGTH}"
            )
        for option, value, low, high in (
            ("--slices", self.slices, 1, MAX_NODES),
            ("--hosts-per-slice", self.hosts_per_slice, 1, MAX_NODES),
            ("--cpu-nodes", self.cpu_nodes, 1, MAX_NODES),
            ("--chips-per-host", self.chips_per_host, 1, 8),
            ("--cred-expire", self.cred_expire_s, _MIN_CRED_EXPIRE_S, 86400),
            ("--grace-time", self.grace_time_s, 0, 86400),
            ("--kill-wait", self.kill_wait_s, 1, 3600),
            # 0 would be for ever.
            ("--min-job-age", self.min_job_age_s, 2, 86400),
        ):
            if not low <= value <= high:
                yield f"{option} {value} is out of range; valid: {low} to {high}"
        nodes = self.cpu_nodes + self.slices * self.hosts_per_slice
        if nodes > MAX_NODES:
            yield (
                f"{self.cpu_nodes} CPU nodes and {self.slices} slices of {self.hosts_per_slice} "
                f"hosts are {nodes} nodes; valid: up to {MAX_NODES}"
            )
        if self.tpu_type not in TPU_TYPES:
            yield f"--tpu-type {self.tpu_type!r} is unknown; valid: {', '.join(TPU_TYPES)}"
        if self.network is None:
            return
        if self.namespaces and private_network(self.network) is None:
            yield (
                f"--network {self.network!r} is none for namespaces; valid: a private /24 such as "
                "10.203.5.0/24"
            )
        if not self.namespaces and network_number(self.network) is None:
            yield f"--network {self.network!r} is none; valid: 127.X.0.0/16 with X from 1 to 254"


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the cluster. ``slice_index`` is None for a CPU node."""

    name: str
    address: str
    port: int
    slice_index: int | None


def nodes_of(options: Options, network: str, first_port: int) -> tuple[Node, ...]:
    """The nodes, CPU nodes first, with ports from ``first_port`` on.

    CPU node I has the address 127.X.0.(1+I), host H of slice S has 127.X.(1+S).(1+H). Nodes that
    are namespaces have the addresses of a /24 in order, from its second one on (the first is this
    machine's), and all the same port.
    """
    places: list[tuple[str, int | None, int]] = [
        (f"cpu{index}", None, index) for index in range(options.cpu_nodes)
    ]
    places += [
        (f"tpu-{index}-{host}", index, host)
        for index in range(options.slices)
        for host in range(options.hosts_per_slice)
    ]
    base = IPv4Network(network).network_address
    if options.namespaces:
        return tuple(
            Node(name, str(base + 2 + number), first_port, index)
            for number, (name, index, _) in enumerate(places)
        )
    return tuple(
        Node(name, str(base + 256 * (0 if index is None else 1 + index) + 1 + host), port, index)
        for port, (name, index, host) in enumerate(places, first_port)
    )


def private_network(network: str) -> IPv4Network | None:
    """The network if it is a /24 of a range for private use (RFC 1918), else None."""
    try:
        parsed = IPv4Network(network)
    except ValueError:
        return None
    ranges = map(IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"))
    return parsed if parsed.prefixlen == 24 and any(map(parsed.subnet_of, ranges)) else None


def network_number(network: str) -> int | None:
    """X of 127.X.0.0/16, or None if it is not such a network."""
    try:
        octets = IPv4Network(network).network_address.packed
    except ValueError:
        return None
    number = octets[1]
    return number if network == f"127.{number}.0.0/16" and 1 <= number <= 254 else None
