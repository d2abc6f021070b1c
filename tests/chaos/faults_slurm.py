# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What can befall a service on Slurm: its daemons, its nodes; of tasks see faults_tasks.py."""

import contextlib
import random
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from slurm.devcluster.daemons import DaemonError
from slurm.devcluster.lifecycle import ClusterError
from slurm.devcluster.machines import MachineError
from tests.chaos.faults import Fault, Hit, Missed, World, renewed
from tests.chaos.faults_cluster import ClusterState, SlurmFault, nodes_of
from tests.chaos.faults_tasks import CancelTask, LaunchFailure, Order, Preempt, TimeLimit
from tests.chaos.sightings import Worker
from tests.chaos.stage import DRAINED, SlurmStage, send

# A slurmctld that is killed within seconds of an sbatch may lose the job, and use its id again.
_SETTLED_S = 10.0


# ---------------------------------------------------------------- the controller


@dataclass
class ControllerAway:
    """slurmctld killed, stopped in order, or hung; and back after a while."""

    state: ClusterState
    how: str
    weight: float = 0.8

    @property
    def name(self) -> str:
        return f"{self.how} slurmctld"

    def possible(self, world: World) -> bool:
        since = float(str(world.field("since") or 0.0))
        settled = world.field("service") == "READY" and time.time() - since > _SETTLED_S
        return settled and not self.state.controller_away

    def do(self, world: World, dice: random.Random) -> Hit:
        lasts = dice.uniform(1.0, 20.0)
        cluster = self.state.cluster
        verbs: dict[str, tuple[Callable[[], None], Callable[[], None]]] = {
            "kill": (cluster.kill_slurmctld, cluster.start_slurmctld),
            "stop": (cluster.stop_slurmctld, cluster.start_slurmctld),
            "hang": (cluster.hang_slurmctld, cluster.resume_slurmctld),
        }
        away, back = verbs[self.how]
        self.state.controller_away = True
        away()

        def undo() -> None:
            try:
                back()
            except DaemonError as error:
                raise Missed(f"slurmctld does not come back: {error}") from error
            self.state.controller_away = False

        return Hit(f"{self.how} slurmctld for {lasts:.1f} s", world.healthy, lasts, undo)


# ---------------------------------------------------------------- nodes


@dataclass
class _NodeAway(SlurmFault, ABC):
    """Something that a node of a slice lacks for a while, and gets back."""

    words: str = ""
    longest_s: float = 25.0

    def do(self, world: World, dice: random.Random) -> Hit:
        lasts = dice.uniform(1.0, self.longest_s)
        which = dice.random()
        index = self.choose(world, dice)
        nodes = nodes_of(world, index)
        node = nodes[int(which * len(nodes))]
        workers = world.actors.workers(index)
        # Slurm requeues it, and when the node is back may lose the new run once more.
        world.cause(index, 4, free=True)
        self.state.nodes.add(node)
        # On a machine that is very busy some of it may be left, or be gone: so be it.
        with contextlib.suppress(ClusterError, MachineError, LookupError):
            self._take(node)

        def undo() -> None:
            try:
                self._give_back(node)
            except (DaemonError, MachineError) as error:
                raise Missed(f"{node} does not come back: {error}") from error
            self.state.nodes.discard(node)

        words = f"{self.words} of {node} for {lasts:.1f} s"
        return Hit(words, self._recovered(world, workers), lasts, undo)

    def _recovered(self, world: World, workers: Sequence[Worker]) -> Callable[[], bool]:
        """See Hit; ``workers`` were the slice's before the fault."""
        del workers
        return world.healthy

    @abstractmethod
    def _take(self, node: str) -> None: ...

    @abstractmethod
    def _give_back(self, node: str) -> None: ...


@dataclass
class KillSlurmd(_NodeAway):
    """kill -9 of a node's slurmd, and its return: what runs there goes on meanwhile."""

    name: str = "kill a slurmd"
    weight: float = 1.0
    words: str = "SIGKILL to slurmd"

    def _take(self, node: str) -> None:
        self.state.cluster.kill_slurmd(node)

    def _give_back(self, node: str) -> None:
        self.state.cluster.start_slurmd(node)


@dataclass
class PowerOff(_NodeAway):
    """The power cut of a node, and its boot: nothing of it is left, and Slurm is not told."""

    name: str = "cut a node's power"
    weight: float = 1.0
    words: str = "power cut"

    def _recovered(self, world: World, workers: Sequence[Worker]) -> Callable[[], bool]:
        return renewed(world, workers[0])

    def _take(self, node: str) -> None:
        self.state.cluster.power_off(node)

    def _give_back(self, node: str) -> None:
        self.state.cluster.power_on(node)


@dataclass
class Partition(_NodeAway):
    """A node without its network, for too short to matter or for longer than it may be silent.

    Only where nodes are namespaces.
    """

    name: str = "cut a node's network"
    weight: float = 1.0
    words: str = "partition"
    longest_s: float = 40.0

    def _take(self, node: str) -> None:
        self.state.cluster.partition(node)

    def _give_back(self, node: str) -> None:
        self.state.cluster.heal(node)


@dataclass
class PowerDown(SlurmFault):
    """power_down_force of a slice's nodes: Slurm requeues its task and resumes them for it."""

    name: str = "power a slice down"
    weight: float = 0.6

    def do(self, world: World, dice: random.Random) -> Hit:
        index = self.choose(world, dice)
        workers = world.actors.workers(index)
        nodes = ",".join(nodes_of(world, index))
        world.cause(index, 3, free=True)
        self.state.scontrol("update", f"nodename={nodes}", "state=power_down_force")
        return Hit(f"power_down_force of {nodes}", renewed(world, workers[0]))


@dataclass
class Drain(SlurmFault):
    """A slice's node drained, its worker killed, and the node resumed: meanwhile it waits."""

    name: str = "drain a node"
    weight: float = 0.6

    def do(self, world: World, dice: random.Random) -> Hit:
        lasts = dice.uniform(3.0, 12.0)
        index = self.choose(world, dice)
        nodes = nodes_of(world, index)
        node = nodes[int(dice.random() * len(nodes))]
        workers = world.actors.workers(index)
        self.state.scontrol("update", f"nodename={node}", "state=drain", f"reason={DRAINED}")
        self.state.nodes.add(node)
        world.cause(index)
        world.spend(f"slice {index}")
        send(signal.SIGKILL, workers[0].process)

        def undo() -> None:
            # Not again if an earlier word, whose answer was lost, has come through.
            if "DRAIN" in self.state.scontrol("show", "node", node):
                self.state.scontrol("update", f"nodename={node}", "state=resume")
            self.state.nodes.discard(node)

        words = f"drain of {node} for {lasts:.1f} s, and SIGKILL to {workers[0]}"
        return Hit(words, renewed(world, workers[0]), lasts, undo)


def slurm_faults(stage: SlurmStage) -> list[Fault]:
    """Those that only a service on Slurm can meet."""
    state = ClusterState(stage.cluster, stage.become, nodes=stage.in_hand)
    network: list[Fault] = [Partition(state)] if stage.cluster.options.namespaces else []
    return [
        *network,
        ControllerAway(state, "kill"),
        ControllerAway(state, "stop", 0.4),
        ControllerAway(state, "hang"),
        Order(state, "requeue"),
        Order(state, "requeuehold", 0.5),
        CancelTask(state),
        KillSlurmd(state),
        PowerOff(state),
        PowerDown(state),
        Drain(state),
        Preempt(state),
        TimeLimit(state),
        LaunchFailure(state),
    ]
