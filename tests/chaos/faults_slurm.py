# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What can befall a service on Slurm: its daemons, its nodes, its administrators, other users."""

import random
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from slurm.devcluster.cluster import DevCluster
from tests.chaos.faults import Fault, Hit, Missed, World, renewed, victims
from tests.chaos.sightings import Worker
from tests.chaos.stage import DRAINED, SlurmStage, send

# A slurmctld that is killed within seconds of an sbatch may lose the job, and use its id again.
_SETTLED_S = 10.0


@dataclass
class ClusterState:
    """What the faults of one cluster have to know of each other."""

    cluster: DevCluster
    become: Sequence[str] = ()
    controller_away: bool = False
    nodes: set[str] = field(default_factory=set)

    def scontrol(self, *words: str) -> str:
        """What it says. Raises Missed when Slurm refuses, or is away."""
        if self.controller_away:
            raise Missed("slurmctld is away")
        try:
            return self.cluster.run("scontrol", *words, timeout_s=15.0).stdout
        except subprocess.CalledProcessError as error:
            raise Missed(f"scontrol {' '.join(words)}: {error.stderr.strip()}") from error
        except subprocess.TimeoutExpired as error:
            raise Missed(f"scontrol {' '.join(words)} hangs") from error


def nodes_of(world: World, index: int) -> list[str]:
    """Where a slice runs."""
    found = world.slice(index).get("nodes")
    return [str(node) for node in found] if isinstance(found, list) else []


@dataclass
class _SlurmFault:
    state: ClusterState

    def _victims(self, world: World) -> list[int]:
        if self.state.controller_away:
            return []
        # Not where another fault has a node.
        return [i for i in victims(world) if not self.state.nodes & set(nodes_of(world, i))]

    def possible(self, world: World) -> bool:
        return bool(self._victims(world))

    def _choose(self, world: World, dice: random.Random) -> int:
        order = dice.sample(range(world.stage.slices), world.stage.slices)
        there = self._victims(world)
        for index in order:
            if index in there:
                return index
        raise Missed("no slice runs whose nodes are whole")

    def _task(self, world: World, index: int) -> str:
        task = world.slice(index).get("task")
        if not task:
            raise Missed(f"slice {index} has no task")
        return str(task)


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
            back()
            self.state.controller_away = False

        return Hit(f"{self.how} slurmctld for {lasts:.1f} s", world.healthy, lasts, undo)


# ---------------------------------------------------------------- orders


@dataclass
class Order(_SlurmFault):
    """An administrator's word about a task: ``requeue``, or ``requeuehold``."""

    verb: str
    weight: float = 0.7

    @property
    def name(self) -> str:
        return f"scontrol {self.verb}"

    def do(self, world: World, dice: random.Random) -> Hit:
        index = self._choose(world, dice)
        workers = world.actors.workers(index)
        task = self._task(world, index)
        world.cause(index, free=True)
        self.state.scontrol(self.verb, task)
        return Hit(f"scontrol {self.verb} {task}", renewed(world, workers[0]))


@dataclass
class CancelTask(_SlurmFault):
    """A user's scancel of one slice: it stays ended. Once a service."""

    name: str = "scancel a slice"
    weight: float = 0.15

    def possible(self, world: World) -> bool:
        # Others must be left, also if some are away.
        return super().possible(world) and len(victims(world)) > 2 and not self._is_done(world)

    def _is_done(self, world: World) -> bool:
        indices = range(world.stage.slices)
        return any(world.slice(index).get("state") == "CANCELLED" for index in indices)

    def do(self, world: World, dice: random.Random) -> Hit:
        index = self._choose(world, dice)
        task = self._task(world, index)
        world.cancelled(index)
        self.state.cluster.run("scancel", task, check=False)
        return Hit(f"scancel {task}", lambda: world.slice(index).get("state") == "CANCELLED")


# ---------------------------------------------------------------- nodes


@dataclass
class _NodeAway(_SlurmFault, ABC):
    """Something that a node of a slice lacks for a while, and gets back."""

    words: str = ""
    longest_s: float = 25.0

    def do(self, world: World, dice: random.Random) -> Hit:
        lasts = dice.uniform(1.0, self.longest_s)
        which = dice.random()
        index = self._choose(world, dice)
        nodes = nodes_of(world, index)
        node = nodes[int(which * len(nodes))]
        workers = world.actors.workers(index)
        # Slurm requeues it, and when the node is back may lose the new run once more.
        world.cause(index, 4, free=True)
        self.state.nodes.add(node)
        self._take(node)

        def undo() -> None:
            self._give_back(node)
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
class PowerDown(_SlurmFault):
    """power_down_force of a slice's nodes: Slurm requeues its task and resumes them for it."""

    name: str = "power a slice down"
    weight: float = 0.6

    def do(self, world: World, dice: random.Random) -> Hit:
        index = self._choose(world, dice)
        workers = world.actors.workers(index)
        nodes = ",".join(nodes_of(world, index))
        world.cause(index, 3, free=True)
        self.state.scontrol("update", f"nodename={nodes}", "state=power_down_force")
        return Hit(f"power_down_force of {nodes}", renewed(world, workers[0]))


@dataclass
class Drain(_SlurmFault):
    """A slice's node drained, its worker killed, and the node resumed: meanwhile it waits."""

    name: str = "drain a node"
    weight: float = 0.6

    def do(self, world: World, dice: random.Random) -> Hit:
        lasts = dice.uniform(3.0, 12.0)
        index = self._choose(world, dice)
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


@dataclass
class Preempt(_SlurmFault):
    """Another user's job of a higher partition takes a slice's nodes for a while."""

    name: str = "preempt a slice"
    weight: float = 1.0

    def do(self, world: World, dice: random.Random) -> Hit:
        lasts = dice.uniform(3.0, 15.0)
        index = self._choose(world, dice)
        workers = world.actors.workers(index)
        nodes = nodes_of(world, index)
        world.cause(index, 2, free=True)
        self.state.nodes.update(nodes)
        done = self.state.cluster.run(
            *self.state.become, "sbatch", "--parsable", "--partition=tpu", f"--nodes={len(nodes)}",
            f"--nodelist={','.join(nodes)}", "--job-name=rival", "--output=/dev/null",
            "--no-requeue", "--wrap", "sleep 600", check=False,
        )  # fmt: skip
        if done.returncode != 0:
            self.state.nodes.difference_update(nodes)
            raise Missed(f"sbatch: {done.stderr.strip()}")
        job = done.stdout.strip()

        def undo() -> None:
            if self.state.controller_away:
                raise Missed("slurmctld is away")
            # Fine if it has gone: the answer to an earlier word may have been lost.
            self.state.cluster.run("scancel", job, check=False)
            self.state.nodes.difference_update(nodes)

        return Hit(
            f"job {job} takes {','.join(nodes)} for {lasts:.1f} s",
            renewed(world, workers[0]),
            lasts,
            undo,
        )


def slurm_faults(stage: SlurmStage) -> list[Fault]:
    """Those that only a service on Slurm can meet."""
    state = ClusterState(stage.cluster, stage.become)
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
    ]
