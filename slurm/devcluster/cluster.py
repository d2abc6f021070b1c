# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""A devcluster for tests: one that comes up, is maltreated, and is gone."""

import os
import pwd
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Self

from slurm.devcluster import lifecycle, members, power
from slurm.devcluster.daemons import Daemons
from slurm.devcluster.machines import Machines, machines_of
from slurm.devcluster.options import Node, Options
from slurm.devcluster.programs import find_programs
from slurm.devcluster.render import Layout

_COMMAND_S = 60.0
_END_S = 15.0
_POLL_S = 0.05


class DevCluster(AbstractContextManager["DevCluster"]):
    """A cluster that is up within the context, and of which nothing is left afterwards."""

    def __init__(self, options: Options, say: Callable[[str], None] = lambda _: None) -> None:
        """Does nothing yet.

        Args:
            options: Of the cluster.
            say: Is told of progress while it comes up.
        """
        self.options = options
        self._say = say
        self._layout: Layout | None = None

    def __enter__(self) -> Self:
        """Brings it up. Raises what :func:`slurm.devcluster.lifecycle.up` raises."""
        self._layout = lifecycle.up(self.options, self._say)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        lifecycle.down(self.options.directory)

    @property
    def layout(self) -> Layout:
        """All choices that were made; only while the cluster is up."""
        if self._layout is None:
            raise RuntimeError("the cluster is not up: use it as a context manager")
        return self._layout

    @property
    def directory(self) -> Path:
        return self.options.directory

    @property
    def conf(self) -> Path:
        """The slurm.conf, as SLURM_CONF takes it."""
        return self.layout.conf

    @property
    def env(self) -> dict[str, str]:
        """This process's environment, for this cluster and without another's variables."""
        return lifecycle.client_environment(self.conf, os.environ)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes, the CPU nodes first."""
        return self.layout.nodes

    def node(self, name: str) -> Node:
        """The node of that name. Raises KeyError."""
        return {node.name: node for node in self.nodes}[name]

    def run(
        self, *argv: str | Path, check: bool = True, timeout_s: float = _COMMAND_S
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command such as ``squeue`` and captures its output, as text.

        Raises:
            subprocess.CalledProcessError: With ``check``, the command failed.
            subprocess.TimeoutExpired: It took too long.
        """
        return subprocess.run(
            argv,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=check,
            timeout=timeout_s,
        )

    def node_states(self) -> dict[str, str]:
        """Node → state as sinfo writes it (idle, allocated*, idle~, …); empty without slurmctld."""
        return lifecycle.node_states(self.layout, find_programs().sinfo)

    @property
    def pids(self) -> dict[str, int]:
        """Of the daemons that live: "munged", "slurmctld", and each slurmd by its node's name."""
        found = members.find(self.directory)
        live = {name: members.daemon(found, name) for name in ("munged", "slurmctld")}
        live |= {node.name: members.daemon(found, "slurmd", node.name) for node in self.nodes}
        return {name: one.process.pid for name, one in live.items() if one is not None}

    def processes(self, node: str | None = None) -> list[members.Member]:
        """Everything of the cluster that lives, or of one node: daemons, and what jobs run."""
        found = members.find(self.directory)
        return found if node is None else [one for one in found if one.node == node]

    def kill_slurmd(self, node: str) -> None:
        """kill -9 of a node's slurmd alone: what jobs run there goes on."""
        self._end("slurmd", node, signal.SIGKILL)

    def start_slurmd(self, node: str) -> None:
        """Starts a node's slurmd again. Raises DaemonError."""
        self._daemons().start_slurmds([node])

    def power_off(self, node: str) -> None:
        """Ends all that runs on a node at once, as a power cut would; Slurm is not told.

        With namespaces the kernel does it, and nobody hears of it: the node is off the network
        before. Without, it is what is recognised as the node's, one after the other.

        Raises:
            MachineError: It is off already, with namespaces.
            ClusterError: Something does not end.
        """
        if self.options.namespaces:
            self._machines.partition(node)
        if left := power.switch_off(self.directory, [node]):
            raise lifecycle.ClusterError(f"still there: {', '.join(map(str, left))}")

    def power_on(self, node: str) -> None:
        """Boots a node that is off. Raises MachineError, DaemonError."""
        power.switch_on(self._machines, self._daemons(), self.directory, [node])

    def partition(self, node: str) -> None:
        """Cuts a node off from the network, until it is healed or switched on anew.

        Raises:
            MachineError: It is off, or the nodes are no namespaces.
        """
        self._machines.partition(node)

    def heal(self, node: str) -> None:
        """Puts a node on the network again. Raises MachineError."""
        self._machines.heal(node)

    def command_on(self, node: str, *argv: str | Path) -> list[str | Path]:
        """The command that runs ``argv`` on a node. Raises MachineError: it is off."""
        return [*self._machines.enter([node])[node], *argv]

    def stop_slurmctld(self) -> None:
        """Ends slurmctld in order; it saves its state."""
        self._end("slurmctld", None, signal.SIGTERM)

    def kill_slurmctld(self) -> None:
        """kill -9 of slurmctld."""
        self._end("slurmctld", None, signal.SIGKILL)

    def start_slurmctld(self) -> None:
        """Starts slurmctld again with the state it saved. Raises DaemonError."""
        self._daemons().start_slurmctld()

    def hang_slurmctld(self) -> None:
        """SIGSTOP: its port accepts connections, and nothing answers."""
        self._signal_slurmctld(signal.SIGSTOP)

    def resume_slurmctld(self) -> None:
        """SIGCONT: it goes on."""
        self._signal_slurmctld(signal.SIGCONT)

    def _signal_slurmctld(self, number: signal.Signals) -> None:
        for one in members.find(self.directory):
            if one.daemon == "slurmctld":
                one.process.send_signal(number)

    def _end(self, name: str, node: str | None, number: signal.Signals) -> None:
        """Signals a daemon, and what it forked of itself, and waits for their end."""
        ending = [
            one for one in members.find(self.directory) if (one.daemon, one.node) == (name, node)
        ]
        if not ending:
            raise LookupError(f"no {name} runs" + (f" on {node}" if node else ""))
        for one in ending:
            one.process.send_signal(number)
        if left := members.wait_gone(ending, _END_S):
            raise lifecycle.ClusterError(f"did not end: {', '.join(map(str, left))}")

    def _daemons(self) -> Daemons:
        return Daemons(self.directory, find_programs(), self._machines)

    @property
    def _machines(self) -> Machines:
        layout = self.layout
        return machines_of(layout.options, layout.network, layout.controller_port)

    def wait_for_states(
        self, wanted: Callable[[dict[str, str]], bool], timeout_s: float
    ) -> dict[str, str]:
        """The nodes' states, as soon as they are as wanted. Raises TimeoutError."""
        deadline = time.monotonic() + timeout_s
        while not wanted(states := self.node_states()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"not as wanted after {timeout_s:g} s: {states}")
            time.sleep(_POLL_S)
        return states


def as_user(user: str, *argv: str | Path) -> list[str | Path]:
    """The command with which root runs ``argv`` as another user. Raises KeyError: there is none."""
    account = pwd.getpwnam(user)
    become = [f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--init-groups"]
    variables = [f"HOME={account.pw_dir}", f"USER={user}", f"LOGNAME={user}"]
    return ["setpriv", *become, "--", "env", *variables, *argv]
