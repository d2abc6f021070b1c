# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What can befall a slice's task in Slurm: orders, limits, launches that fail, better jobs."""

import random
import subprocess
from dataclasses import dataclass

from tests.chaos.faults import Hit, Missed, World, renewed
from tests.chaos.faults import victims as running
from tests.chaos.faults_cluster import SlurmFault, nodes_of

# Takes the place of a job's directory as soon as that is removed, so that it can't be made again.
_IN_THE_WAY = 'until ln -sT /nonexistent "$1" 2>/dev/null; do sleep 0.02; done'


@dataclass
class Order(SlurmFault):
    """An administrator's word about a task: ``requeue``, or ``requeuehold``."""

    verb: str
    weight: float = 0.7

    @property
    def name(self) -> str:
        return f"scontrol {self.verb}"

    def do(self, world: World, dice: random.Random) -> Hit:
        index = self.choose(world, dice)
        workers = world.actors.workers(index)
        task = self.task(world, index)
        world.cause(index, free=True)
        self.state.scontrol(self.verb, task)
        return Hit(f"scontrol {self.verb} {task}", renewed(world, workers[0]))


@dataclass
class CancelTask(SlurmFault):
    """A user's scancel of one slice: it stays ended. Once a service."""

    name: str = "scancel a slice"
    weight: float = 0.15

    def possible(self, world: World) -> bool:
        # Others must be left, also if some are away.
        return super().possible(world) and len(running(world)) > 2 and not self._is_done(world)

    def _is_done(self, world: World) -> bool:
        indices = range(world.stage.slices)
        return any(world.slice(index).get("state") == "CANCELLED" for index in indices)

    def do(self, world: World, dice: random.Random) -> Hit:
        index = self.choose(world, dice)
        task = self.task(world, index)
        world.cancelled(index)
        self.state.cluster.run("scancel", task, check=False)
        return Hit(f"scancel {task}", lambda: world.slice(index).get("state") == "CANCELLED")


@dataclass
class TimeLimit(SlurmFault):
    """The end of the time that Slurm grants a task."""

    name: str = "reach the time limit"
    weight: float = 0.5

    def do(self, world: World, dice: random.Random) -> Hit:
        index = self.choose(world, dice)
        workers = world.actors.workers(index)
        task = self.task(world, index)
        # The limit is one of minutes, and would hold for the next run, too, until it is lifted.
        world.cause(index, 2)
        world.spend(f"slice {index}")
        self.state.scontrol("update", f"jobid={task}", "EndTime=now+1")
        return Hit(
            f"task {task} reaches its time limit",
            renewed(world, workers[0]),
            lasts_s=10.0,
            undo=lambda: self._lift(task),
        )

    def _lift(self, task: str) -> None:
        # Not if it has gone: cancelled, or with its service.
        if task in self.state.squeue("-r", "-o", "%i").split():
            self.state.scontrol("update", f"jobid={task}", "TimeLimit=UNLIMITED")


@dataclass
class LaunchFailure(SlurmFault):
    """For a while no node can make a directory for a task that is requeued; Slurm holds it."""

    name: str = "let launches fail"
    weight: float = 0.5

    def do(self, world: World, dice: random.Random) -> Hit:
        lasts = dice.uniform(4.0, 12.0)
        index = self.choose(world, dice)
        workers = world.actors.workers(index)
        task = self.task(world, index)
        job = self.state.squeue("-j", task, "-o", "%A").strip()
        if not job.isdigit():
            raise Missed(f"task {task} has no job")
        cluster = self.state.cluster
        links = [
            cluster.layout.node_directory(node.name) / "spool" / f"job{int(job):05d}"
            for node in cluster.nodes
            if node.slice_index is not None
        ]
        world.cause(index, 8, free=True)
        world.spend(f"slice {index}")
        self.state.scontrol("requeue", task)
        processes = [
            subprocess.Popen(["bash", "-c", _IN_THE_WAY, "bash", link], start_new_session=True)
            for link in links
        ]

        def undo() -> None:
            for process in processes:
                process.kill()
                process.wait()
            for link in links:
                if link.is_symlink():
                    link.unlink()

        words = f"scontrol requeue {task}, whose launch fails for {lasts:.1f} s"
        return Hit(words, renewed(world, workers[0]), lasts, undo)


@dataclass
class Preempt(SlurmFault):
    """Another user's job of a higher partition takes a slice's nodes for a while.

    With notice, or without: the grace time is the partition's.
    """

    name: str = "preempt a slice"
    weight: float = 1.0

    def do(self, world: World, dice: random.Random) -> Hit:
        lasts = dice.uniform(3.0, 15.0)
        index = self.choose(world, dice)
        workers = world.actors.workers(index)
        nodes = nodes_of(world, index)
        grace = dice.choice([0, 2])
        self.state.scontrol("update", "PartitionName=tpu-low", f"GraceTime={grace}")
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
            f"job {job} takes {','.join(nodes)} for {lasts:.1f} s, with {grace} s of notice",
            renewed(world, workers[0]),
            lasts,
            undo,
        )
