# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Which network and which ports a cluster uses, so that several live side by side.

A network 127.X.0.0/16 has a block of ports of its own, below those that the kernel hands out. Who
holds the block's first port (slurmctld) or its last (an up under way) has the network. One of
namespaces is had by the bridge that has its address.
"""

import contextlib
import errno
import random
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network

from slurm.devcluster import links
from slurm.devcluster.options import MAX_NODES, network_number

_FIRST_PORT = 10000
# slurmctld, the nodes, and the port that keeps the block while a cluster comes up.
_BLOCK = 1 + MAX_NODES + 1

# Apart from the networks that services and demos choose by themselves.
_NETWORKS = range(16, 41)

# Slurm's own: nothing else has these addresses. The nodes' port follows that of slurmctld.
_PRIVATE_PORT = 6817
_PRIVATE_NETWORKS = tuple(IPv4Network("10.203.0.0/16").subnets(new_prefix=24))

# What a service would use there: if anyone does, the network is taken.
_SERVICE_PORTS = (28999, 29000, 29001)

_CHOOSE_S = 30.0
_POLL_S = 0.05


class AddressError(Exception):
    """No network is free, or not the one asked for."""


@dataclass(frozen=True, slots=True)
class Addresses:
    """A network, and the port of slurmctld; the nodes' ports follow it."""

    network: str
    controller_port: int


def controller_port(network: str) -> int:
    """The port of slurmctld in this network, which must be valid."""
    number = network_number(network)
    assert number is not None, network
    return _FIRST_PORT + number * _BLOCK


@contextlib.contextmanager
def reserved(network: str | None, nodes: int) -> Iterator[Addresses]:
    """Addresses that nothing uses, kept from other clusters within the context.

    Raises:
        AddressError: There are none.
    """
    numbers = random.sample(_NETWORKS, len(_NETWORKS))
    candidates = [network] if network else [f"127.{number}.0.0/16" for number in numbers]
    problem = ""
    for candidate in candidates:
        first = controller_port(candidate)
        with contextlib.ExitStack() as stack:
            try:
                # Listening: another one bound to it would be let in otherwise.
                _bind(stack, "0.0.0.0", first + _BLOCK - 1).listen(1)
                with contextlib.ExitStack() as probes:
                    for port in range(first, first + 1 + nodes):
                        _bind(probes, "0.0.0.0", port)
                    for port in _SERVICE_PORTS:
                        _bind(probes, candidate.replace(".0.0/16", ".0.1"), port)
            except AddressError as error:
                problem = str(error)
                continue
            yield Addresses(candidate, first)
            return
    if network:
        raise AddressError(
            f"--network {network} can't be used: {problem}; another cluster or service may have "
            "it. Leave the option out to have a free one chosen"
        )
    raise AddressError(
        f"none of the networks 127.{_NETWORKS[0]}.0.0/16 to 127.{_NETWORKS[-1]}.0.0/16 is free "
        f"(the last one tried: {problem}); end a cluster, or give --network"
    )


@contextlib.contextmanager
def reserved_private(network: str | None) -> Iterator[Addresses]:
    """The same for a cluster of namespaces, whose bridge is to be made within the context.

    Raises:
        AddressError: There are none, or another cluster has been choosing for too long.
        LinkError: This machine's networks can't be told.
    """
    candidates = [IPv4Network(network)] if network else _PRIVATE_NETWORKS
    with _choosing():
        used = links.used_networks()
        free = [one for one in candidates if not any(map(one.overlaps, used))]
        if not free:
            told = f"--network {network}" if network else "each of 10.203.0.0/16's /24"
            raise AddressError(
                f"{told} is in use: it overlaps {', '.join(_overlapped(candidates, used))}; "
                "end a cluster, or give another --network"
            )
        yield Addresses(str(random.choice(free)), _PRIVATE_PORT)


def _overlapped(candidates: Sequence[IPv4Network], used: Sequence[IPv4Network]) -> list[str]:
    return sorted({str(one) for one in used if any(map(one.overlaps, candidates))})


@contextlib.contextmanager
def _choosing() -> Iterator[None]:
    """One at a time in this machine's network; a holder that dies lets go."""
    deadline = time.monotonic() + _CHOOSE_S
    with socket.socket(socket.AF_UNIX) as lock:
        while True:
            try:
                lock.bind("\0pathways-devcluster-network")
                break
            except OSError as error:
                if time.monotonic() > deadline:
                    raise AddressError(
                        f"another cluster has been choosing its network for {_CHOOSE_S:g} s"
                    ) from error
            time.sleep(_POLL_S)
        yield


def _bind(stack: contextlib.ExitStack, address: str, port: int) -> socket.socket:
    probe = stack.enter_context(socket.socket())
    # As the daemons do it: connections of a cluster that has ended don't keep its ports.
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        probe.bind((address, port))
    except OSError as error:
        name = errno.errorcode.get(error.errno or 0, "an error")
        raise AddressError(f"binding {address}:{port} gave {name}") from error
    return probe
