# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What the faults of a service on Slurm have in common."""

import random
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field

from slurm.devcluster.cluster import DevCluster
from tests.chaos.faults import Missed, World
from tests.chaos.faults import victims as running


@dataclass
class ClusterState:
    """What the faults of one cluster have to know of each other."""

    cluster: DevCluster
    become: Sequence[str] = ()
    controller_away: bool = False
    nodes: set[str] = field(default_factory=set)

    def scontrol(self, *words: str) -> str:
        """What it says. Raises Missed when Slurm refuses, or is away."""
        return self._ask("scontrol", *words)

    def squeue(self, *words: str) -> str:
        """The same of squeue, without its heading."""
        return self._ask("squeue", "-h", *words)

    def _ask(self, *words: str) -> str:
        if self.controller_away:
            raise Missed("slurmctld is away")
        try:
            return self.cluster.run(*words, timeout_s=15.0).stdout
        except subprocess.CalledProcessError as error:
            raise Missed(f"{' '.join(words)}: {error.stderr.strip()}") from error
        except subprocess.TimeoutExpired as error:
            raise Missed(f"{' '.join(words)} hangs") from error


def nodes_of(world: World, index: int) -> list[str]:
    """Where a slice runs."""
    found = world.slice(index).get("nodes")
    return [str(node) for node in found] if isinstance(found, list) else []


@dataclass
class SlurmFault:
    """One that takes Slurm, and a slice on whose nodes there is no other."""

    state: ClusterState

    def victims(self, world: World) -> list[int]:
        if self.state.controller_away:
            return []
        # Not where another fault has a node. A supervisor that is new may not know nodes yet.
        nodes = {index: set(nodes_of(world, index)) for index in running(world)}
        return [index for index, its in nodes.items() if its and not its & self.state.nodes]

    def possible(self, world: World) -> bool:
        return bool(self.victims(world))

    def choose(self, world: World, dice: random.Random) -> int:
        order = dice.sample(range(world.stage.slices), world.stage.slices)
        there = self.victims(world)
        for index in order:
            if index in there:
                return index
        raise Missed("no slice runs whose nodes are whole")

    def task(self, world: World, index: int) -> str:
        task = world.slice(index).get("task")
        if not task:
            raise Missed(f"slice {index} has no task")
        return str(task)
