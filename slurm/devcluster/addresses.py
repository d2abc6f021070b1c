# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Which loopback network and which ports a cluster uses, so that several live side by side.

A network 127.X.0.0/16 has a block of ports of its own, below those that the kernel hands out. Who
holds the block's first port (slurmctld) or its last (an up under way) has the network.
"""

import contextlib
import errno
import random
import socket
from collections.abc import Iterator
from dataclasses import dataclass

from slurm.devcluster.options import MAX_NODES, network_number

_FIRST_PORT = 10000
# slurmctld, the nodes, and the port that keeps the block while a cluster comes up.
_BLOCK = 1 + MAX_NODES + 1

# Apart from the networks that services and demos choose by themselves.
_NETWORKS = range(16, 41)

# What a service would use there: if anyone does, the network is taken.
_SERVICE_PORTS = (28999, 29000, 29001)


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
