# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Keeps tasks off nodes, by the list of excluded nodes that each job of Slurm's has.

The owner of a pending job may change its list, and a requeue keeps it. A job whose list leaves it
no node loses its priority, so none is ever given such a list.
"""

import re
from collections.abc import Callable, Collection, Sequence

from pathways_slurm.scheduler.base import SchedulerUnavailable
from pathways_slurm.scheduler.slurm_command import SlurmClient, refusal
from pathways_slurm.scheduler.slurm_nodes import NodeDirectory
from pathways_slurm.scheduler.slurm_options import user_excludes
from pathways_slurm.scheduler.slurm_parse import NodeInfo, parse_job

_UNUSABLE = frozenset({"DOWN", "DRAIN", "FAIL", "ERROR", "UNKNOWN", "FUTURE", "MAINT"})
_NUMBER = re.compile(r"[0-9]+")
_OVERTAKEN = ("no longer pending", "already finished", "already completing or completed")


def places(hosts: int, usable: Collection[str], islands: Sequence[frozenset[str]]) -> int:
    """How many slices of ``hosts`` nodes find place on these nodes. Pure.

    Args:
        hosts: Nodes of a slice.
        usable: Names of the nodes.
        islands: Groups of nodes that no job spans; none if the topology does not say.
    """
    groups = [island for island in islands if len(island) == hosts]
    if hosts > 1 and groups:
        return sum(group <= frozenset(usable) for group in groups)
    return len(usable) // hosts


class Avoidance:
    """Of the tasks of one service."""

    def __init__(
        self,
        client: SlurmClient,
        nodes: NodeDirectory,
        extra_args: Sequence[str],
        islands: Callable[[], tuple[frozenset[str], ...]],
    ) -> None:
        """Asks nothing yet.

        Args:
            client: Slurm.
            nodes: Of the cluster.
            extra_args: The user's own options for sbatch, which may exclude nodes too.
            islands: Groups of nodes that no job spans.
        """
        self._client = client
        self._nodes = nodes
        self._extra_args = extra_args
        self._islands = islands

    def apply(self, task_id: str, names: Collection[str], slices: int) -> str:
        """Has a pending task keep off these nodes and no others, but for the user's own.

        Args:
            task_id: Of the task.
            names: Of the nodes.
            slices: How many tasks must find place on other nodes.

        Returns:
            Why it does not keep off them; "" if it does.

        Raises:
            SchedulerUnavailable: Slurm gave no answer, or the task is not pending any more.
            SchedulerError: Slurm refuses.
        """
        job = parse_job(self._client.look("scontrol", "--oneliner", "show", "job", task_id))
        hosts = _NUMBER.match(job.get("NumNodes", ""))
        if hosts is None:
            raise SchedulerUnavailable(f"Slurm does not say how many nodes task {task_id} has")
        partition = job.get("Partition", "")
        avoided, why = self.possible(names, partition, int(hosts[0]), slices)
        if why:
            return why
        wanted = {*avoided, *self._own()}
        if wanted == set(self._expand(job.get("ExcNodeList", ""))):
            return ""
        listed = ",".join(sorted(wanted))
        done = self._client.order("scontrol", "update", f"jobid={task_id}", f"ExcNodeList={listed}")
        if done.code != 0 and any(words in done.words for words in _OVERTAKEN):
            raise SchedulerUnavailable(f"task {task_id} is not pending any more")
        if done.code != 0:
            raise refusal(done, f"task {task_id} was not told to keep off {listed or 'no node'}")
        return ""

    def possible(
        self, names: Collection[str], partition: str, hosts: int, slices: int
    ) -> tuple[tuple[str, ...], str]:
        """Which of these nodes a new array of ``slices`` tasks can keep off: all, or none.

        Args:
            names: Of the nodes; those that Slurm does not know (any more) do not matter.
            partition: Of the array; a comma list is fine.
            hosts: Nodes of each task.
            slices: Tasks of the array.

        Returns:
            The nodes, and why they are none of those asked for, or "".

        Raises:
            SchedulerUnavailable: Slurm gave no answer.
        """
        infos = self._nodes.infos()
        mine = [info for info in infos if info.partitions & set(partition.split(","))]
        avoided = set(names) & {info.name for info in infos}
        why = self._too_few(hosts, mine, avoided, slices)
        return () if why else tuple(sorted(avoided)), why

    def _too_few(
        self,
        hosts: int,
        mine: Sequence[NodeInfo],
        avoided: Collection[str],
        slices: int,
    ) -> str:
        if not avoided:
            return ""
        own = self._own()
        left = {
            info.name
            for info in mine
            if info.name not in avoided and info.name not in own and not info.state & _UNUSABLE
        }
        found = places(hosts, left, self._islands() if hosts > 1 else ())
        if found >= slices:
            return ""
        return (
            f"without {', '.join(sorted(avoided))} only {found} slices of {hosts} hosts would find "
            f"nodes, and the service has {slices}"
        )

    def _own(self) -> frozenset[str]:
        """Nodes that the user excludes."""
        own = user_excludes(self._extra_args)
        return frozenset(name for part in own for name in self._expand(part))

    def _expand(self, expression: str) -> tuple[str, ...]:
        return self._nodes.expand(expression) if expression not in ("", "(null)") else ()
