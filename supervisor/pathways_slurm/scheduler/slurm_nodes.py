# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Names and addresses of nodes. Names need not resolve: a node's address is its NodeAddr."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pathways_slurm.scheduler.base import Node, SchedulerUnavailable
from pathways_slurm.scheduler.slurm_command import SlurmClient
from pathways_slurm.scheduler.slurm_parse import NodeInfo, Row, parse_nodes
from pathways_slurm.states import TaskState

_PLAIN = re.compile(r"[^\[\],]+")

_WAITING = (TaskState.PENDING, TaskState.HELD)

# Of a run: the task's id, and when it started.
type _Run = tuple[str, float]


@dataclass(frozen=True)
class _Known:
    """The nodes of a run, and the expression that Slurm had for them."""

    expression: str
    nodes: tuple[Node, ...]

    def holds_for(self, row: Row) -> bool:
        """A run's nodes leave it one by one as it ends; other nodes are those of a next run."""
        return row.state is not TaskState.RUNNING or row.nodes == self.expression


class NodeDirectory:
    """Looks nodes up, each allocation of a task once."""

    def __init__(self, client: SlurmClient) -> None:
        self._client = client
        self._names: dict[str, tuple[str, ...]] = {}
        # A node that is created anew for a later run may have another address by then, so what
        # is known belongs to one run.
        self._runs: dict[_Run, _Known] = {}

    def nodes_of(self, rows: Sequence[Row]) -> dict[str, tuple[Node, ...]]:
        """The nodes of each row that has any, in Slurm's order, by the row's id.

        What is known of a run is forgotten once its row is not among ``rows``.

        A task that waits has none, though Slurm may still tell those of its last run, together with
        the time at which it expects to start the next.

        Raises:
            SchedulerUnavailable: Slurm did not answer.
        """
        with_nodes = [row for row in rows if row.nodes and row.state not in _WAITING]
        known = {
            _key(row): run
            for row in with_nodes
            if (run := self._runs.get(_key(row))) is not None and run.holds_for(row)
        }
        fresh = [row for row in with_nodes if _key(row) not in known]
        names = {row.id: self.expand(row.nodes) for row in fresh}
        addresses = self._addresses({name for group in names.values() for name in group})
        found = {row.id: known[_key(row)].nodes for row in with_nodes if _key(row) in known}
        for row in fresh:
            found[row.id] = tuple(Node(name, addresses[name]) for name in names[row.id])
            # Nodes that are being started get their address on the way, and those of a task
            # that is ending are not all of them.
            if row.state not in (TaskState.CONFIGURING, TaskState.COMPLETING):
                known[_key(row)] = _Known(row.nodes, found[row.id])
        self._runs = known
        return found

    def expand(self, expression: str) -> tuple[str, ...]:
        """The nodes of an expression such as ``tpu-[0-1],x``, in order.

        Raises:
            SchedulerUnavailable: scontrol can't be run.
        """
        if _PLAIN.fullmatch(expression):
            return (expression,)
        if expression not in self._names:
            answer = self._client.look("scontrol", "show", "hostnames", expression)
            self._names[expression] = tuple(answer.split())
        return self._names[expression]

    def infos(self, names: Iterable[str] = ()) -> tuple[NodeInfo, ...]:
        """What Slurm's configuration says of these nodes, or of all; unknown ones are left out.

        Raises:
            SchedulerUnavailable: Slurm did not answer.
        """
        listed = ",".join(sorted(names))
        argv = ("scontrol", "--oneliner", "show", "node", *([listed] if listed else []))
        done = self._client.attempt(*argv)
        if done.code != 0 and "not found" not in done.words:
            raise SchedulerUnavailable(f"scontrol show node failed: {done.words}")
        return parse_nodes(done.out)

    def address(self, name: str) -> str | None:
        """A node's address, None if Slurm knows no such node. Raises SchedulerUnavailable."""
        return next((info.address for info in self.infos([name]) if info.name == name), None)

    def _addresses(self, names: set[str]) -> dict[str, str]:
        # A node that has left the configuration since has no address but its name.
        found = {name: name for name in names}
        if names:
            found |= {info.name: info.address for info in self.infos(names) if info.name in names}
        return found


def _key(row: Row) -> _Run:
    return row.id, row.started
