# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What a cluster's nodes are: names for parts of this machine, or machines by namespaces."""

import contextlib
import os
import subprocess
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Network
from pathlib import Path
from typing import Protocol

from slurm.devcluster import links, members
from slurm.devcluster.options import Options, nodes_of

_HOSTS = "hosts"
_SCRIPT = Path(__file__).with_name("machine.sh")
# The name of slurmctld's machine among namespaces.
CONTROLLER = "controller"
# Far above what it takes on a busy machine.
_BOOT_S = 30.0


class MachineError(Exception):
    """A node did not boot, or can't be treated in this way."""


class Machines(Protocol):
    """The machines that the nodes run on."""

    def prepare(self) -> None:
        """Makes what they have in common, once for a cluster. Raises MachineError."""

    def boot(self, nodes: Sequence[str]) -> None:
        """Makes machines of nodes that are off. Raises MachineError."""

    def enter(self, nodes: Sequence[str]) -> dict[str, list[str]]:
        """Node → what to put before a command to run it there. Raises MachineError: one is off."""

    def controller(self) -> list[str | Path]:
        """What to put before slurmctld's command."""

    def partition(self, node: str) -> None:
        """Cuts the node off from the network. Raises MachineError."""

    def heal(self, node: str) -> None:
        """Ends that. Raises MachineError."""


class ThisMachine:
    """All nodes share this machine: its network, its host name, its processes."""

    def prepare(self) -> None:
        """Does nothing: it is there."""

    def boot(self, nodes: Sequence[str]) -> None:
        """Does nothing: it runs."""

    def enter(self, nodes: Sequence[str]) -> dict[str, list[str]]:
        """Nothing has to come before a command."""
        return {node: [] for node in nodes}

    def controller(self) -> list[str | Path]:
        """Nothing."""
        return []

    def partition(self, node: str) -> None:
        """Raises MachineError."""
        raise MachineError(
            f"{node} can't be cut off: it shares this machine's network. "
            "Bring the cluster up with --namespaces, as root"
        )

    heal = partition


class Namespaces:
    """Each node has a network, a host name, processes and mounts of its own. Takes root."""

    def __init__(self, directory: Path, network: IPv4Network, nodes: Mapping[str, str]) -> None:
        """``nodes``: their names and addresses."""
        self._directory = directory
        self._network = network
        self._addresses = nodes
        self._links = {node: links.link_of(directory, index) for index, node in enumerate(nodes)}

    def prepare(self) -> None:
        """Makes the bridge between them. Raises MachineError."""
        try:
            links.add_bridge(self._directory, self._network)
        except links.LinkError as error:
            raise MachineError(str(error)) from error

    def boot(self, nodes: Sequence[str]) -> None:
        """Makes the nodes' namespaces and puts them on the network. Raises MachineError."""
        starting = {}
        off = [node for node in nodes if node not in self._inits()]
        try:
            for node in off:
                # That of a former life goes by itself, but some time later.
                links.remove(self._directory, self._links[node])
                starting[node] = self._start(node)
            for node, process in starting.items():
                self._finish(node, process)
            bridge = links.bridge_of(self._directory)
            links.change([f"link set dev {self._links[node]} master {bridge} up" for node in off])
        except links.LinkError as error:
            raise MachineError(str(error)) from error
        finally:
            for process in starting.values():
                process.kill()
                process.wait()
                assert process.stdout is not None
                process.stdout.close()

    def _start(self, node: str) -> subprocess.Popen[str]:
        address = f"{self._addresses[node]}/{self._network.prefixlen}"
        place = [address, self._links[node], str(os.getpid())]
        private = os.open(self._log(node), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(private, "w") as log:
            return subprocess.Popen(
                [_SCRIPT, "node", node, *place, self._directory / _HOSTS],
                env=members.marked({**os.environ, "PATH": links.PATH}, self._directory, node),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def _finish(self, node: str, process: subprocess.Popen[str]) -> None:
        said = ""
        with contextlib.suppress(subprocess.TimeoutExpired):
            said, _ = process.communicate(timeout=_BOOT_S)
        if said != "ready\n":
            log = self._log(node).read_text().strip()
            raise MachineError(f"{node} did not boot; it said: {log or 'nothing'}")

    def _log(self, node: str) -> Path:
        return self._directory / "nodes" / node / "boot.log"

    def enter(self, nodes: Sequence[str]) -> dict[str, list[str]]:
        """Node → the words that run a command there. Raises MachineError: one is off."""
        return {
            node: ["nsenter", f"--target={pid}", "--net", "--uts", "--mount", "--pid", "--"]
            for node, pid in self._on(nodes).items()
        }

    def _inits(self) -> dict[str | None, int]:
        found = members.find(self._directory)
        return {one.node: one.process.pid for one in found if one.daemon == members.INIT}

    def _on(self, nodes: Sequence[str]) -> dict[str, int]:
        """The nodes' inits. Raises MachineError: one is off."""
        inits = self._inits()
        if off := [node for node in nodes if node not in inits]:
            raise MachineError(f"off: {', '.join(off)}; switch them on first")
        return {node: inits[node] for node in nodes}

    def controller(self) -> list[str | Path]:
        """What gives slurmctld the name by which it finds its own address."""
        return [_SCRIPT, "controller", CONTROLLER, self._directory / _HOSTS]

    def partition(self, node: str) -> None:
        """Nothing from or to the node gets through. Raises MachineError."""
        self._set(node, "down")

    def heal(self, node: str) -> None:
        """Puts it on the network again. Raises MachineError."""
        self._set(node, "up")

    def _set(self, node: str, state: str) -> None:
        self._on([node])  # a node that is off has no link
        try:
            links.change([f"link set dev {self._links[node]} {state}"])
        except links.LinkError as error:
            raise MachineError(str(error)) from error


def machines_of(options: Options, network: str, controller_port: int) -> Machines:
    """The machines of a cluster, as its record tells of it."""
    if not options.namespaces:
        return ThisMachine()
    nodes = nodes_of(options, network, controller_port + 1)
    addresses = {node.name: node.address for node in nodes}
    return Namespaces(options.directory, IPv4Network(network), addresses)
