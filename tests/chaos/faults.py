# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What can befall a service: faults of its processes, wherever it runs.

A fault is a small class; whoever has more of them adds them to the list that a campaign is given.
"""

import random
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tests.chaos.sightings import Process, Worker
from tests.chaos.stage import LEASE_S, Actors, Stage, send


class World(Protocol):
    """What a fault may use."""

    stage: Stage
    actors: Actors

    def cause(self, index: int, restarts: int = 1, *, free: bool = False) -> None:
        """Tells the checker that restarts of a slice have a cause now."""

    def cancelled(self, index: int) -> None:
        """Tells it that a slice was cancelled by order."""

    def slice(self, index: int) -> dict[str, object]:
        """The slice in status.json; empty if it has none."""

    def field(self, *names: str) -> object:
        """A value in status.json, None if it is not there."""

    def healthy(self) -> bool:
        """Every slice that was not cancelled is ready, and cluster.env names a live proxy."""

    def can_spare(self, role: str) -> bool:
        """Whether a restart of a slice ("slice 1") or component is within its budget."""

    def spend(self, role: str) -> None:
        """Notes such a restart."""

    def renew(self, end: Callable[[], None], *, withdrawn: bool = True) -> None:
        """Ends the service by ``end``, waits until nothing of it is left, and starts it again.

        ``withdrawn``: cluster.env must be gone as well.
        """


@dataclass(frozen=True)
class Hit:
    """A fault that was done.

    Attributes:
        words: What was done, for people.
        recovered: Tells whether its effect has come and is over.
        lasts_s: How long until ``undo``; 0 if there is nothing to undo.
        undo: Ends it.
    """

    words: str
    recovered: Callable[[], bool]
    lasts_s: float = 0.0
    undo: Callable[[], None] | None = None


class Fault(Protocol):
    """One kind of fault."""

    @property
    def name(self) -> str: ...

    @property
    def weight(self) -> float:
        """How often it comes, in proportion to others."""

    def possible(self, world: World) -> bool:
        """Its precondition."""

    def do(self, world: World, dice: random.Random) -> Hit:
        """Does it. All choices are the dice's. Raises Missed if the victim has gone meanwhile."""


class Missed(Exception):
    """The precondition does not hold any more."""


# ---------------------------------------------------------------- slices


def victims(world: World) -> list[int]:
    """Slices that run, in full and within their budget."""
    workers = world.actors.workers()
    return [
        index
        for index in range(world.stage.slices)
        if sum(worker.slice == index for worker in workers) >= 2
        and world.slice(index).get("state") == "READY"
        and world.can_spare(f"slice {index}")
    ]


def choose(world: World, dice: random.Random) -> list[Worker]:
    """The workers of one of them."""
    # Drawn from all slices, so that which ones are there does not change what is drawn later.
    order = dice.sample(range(world.stage.slices), world.stage.slices)
    there = victims(world)
    for index in order:
        if index in there and (workers := world.actors.workers(index)):
            return workers
    raise Missed("no slice runs")


def renewed(world: World, worker: Worker) -> Callable[[], bool]:
    """Whether the slice is ready in a newer incarnation."""

    def ready() -> bool:
        now = world.slice(worker.slice)
        newer = int(str(now.get("incarnation", 0))) > worker.incarnation
        return now.get("state") == "READY" and newer

    return ready


@dataclass
class LoseSlice:
    """A signal that ends one host, or all, of a slice."""

    name: str
    weight: float
    number: signal.Signals
    hosts: int = 1

    def possible(self, world: World) -> bool:
        return bool(victims(world))

    def do(self, world: World, dice: random.Random) -> Hit:
        workers = choose(world, dice)
        dice.shuffle(workers)
        hit = workers[: self.hosts]
        index = hit[0].slice
        world.cause(index)
        world.spend(f"slice {index}")
        send(self.number, *(worker.process for worker in hit))
        return Hit(f"{self.number.name} to {', '.join(map(str, hit))}", renewed(world, hit[0]))


@dataclass
class StopWorker:
    """SIGSTOP of a host, for a while: too short to matter, or longer than its heartbeat may."""

    name: str = "stop a worker"
    weight: float = 1.0

    def possible(self, world: World) -> bool:
        return bool(victims(world))

    def do(self, world: World, dice: random.Random) -> Hit:
        lasts = dice.uniform(1.0, 20.0)
        worker = dice.choice(choose(world, dice))
        # Maybe: if the heartbeat timeout or the lease passed.
        world.cause(worker.slice)
        world.spend(f"slice {worker.slice}")
        send(signal.SIGSTOP, worker.process)
        return Hit(
            f"SIGSTOP to {worker} for {lasts:.1f} s",
            world.healthy,
            lasts,
            lambda: send(signal.SIGCONT, worker.process),
        )


# ---------------------------------------------------------------- components


def _component_is_back(world: World, role: str, old: Process) -> Callable[[], bool]:
    # Not by the pids in status.json: in a namespace they are others.
    def back() -> bool:
        if role == "supervisor":
            well = world.healthy()
        else:
            well = world.field(role, "state") == "UP" and world.field("service") == "READY"
        return well and any(one.key != old.key for one in world.actors.named(role))

    return back


def _one(world: World, role: str) -> Process:
    found = world.actors.named(role)
    if not found:
        raise Missed(f"no {role} runs")
    return found[0]


@dataclass
class KillComponent:
    """kill -9 of supervisor, resource manager or proxy."""

    role: str
    weight: float = 1.0

    @property
    def name(self) -> str:
        return f"kill the {self.role}"

    def possible(self, world: World) -> bool:
        return world.can_spare(self.role) and bool(world.actors.named(self.role))

    def do(self, world: World, dice: random.Random) -> Hit:
        del dice
        process = _one(world, self.role)
        world.spend(self.role)
        send(signal.SIGKILL, process)
        return Hit(
            f"SIGKILL to the {self.role}, pid {process.pid}",
            _component_is_back(world, self.role, process),
        )


@dataclass
class KillGuard:
    """kill -9 of the guard of RM or proxy: the kernel ends the component with it."""

    name: str = "kill a guard"
    weight: float = 0.5

    def possible(self, world: World) -> bool:
        spare = world.can_spare("rm") and world.can_spare("proxy")
        return spare and bool(world.actors.named("guard"))

    def do(self, world: World, dice: random.Random) -> Hit:
        guards = world.actors.named("guard")
        if not guards:
            raise Missed("no guard runs")
        guard = guards[int(dice.random() * len(guards))]
        role = "proxy" if guard.flag("num_elastic_instances") else "rm"
        world.spend(role)
        component = _one(world, role)
        send(signal.SIGKILL, guard)
        return Hit(
            f"SIGKILL to the guard of the {role}, pid {guard.pid}",
            _component_is_back(world, role, component),
        )


@dataclass
class StopComponent:
    """SIGSTOP of supervisor, resource manager or proxy for a while."""

    role: str
    longest_s: float
    weight: float = 0.7

    @property
    def name(self) -> str:
        return f"stop the {self.role}"

    def possible(self, world: World) -> bool:
        return world.can_spare(self.role) and bool(world.actors.named(self.role))

    def do(self, world: World, dice: random.Random) -> Hit:
        lasts = dice.uniform(1.0, self.longest_s)
        process = _one(world, self.role)
        world.spend(self.role)
        if self.role == "rm" and lasts > LEASE_S / 2:
            # Workers may not outlive their lease.
            for index in range(world.stage.slices):
                world.cause(index, 2)
        send(signal.SIGSTOP, process)
        return Hit(
            f"SIGSTOP to the {self.role}, pid {process.pid}, for {lasts:.1f} s",
            world.healthy,
            lasts,
            lambda: send(signal.SIGCONT, process),
        )


@dataclass
class KillSeveral:
    """kill -9 of several at once: any of supervisor, RM, proxy and the hosts of one slice."""

    name: str = "kill several"
    weight: float = 1.5

    def possible(self, world: World) -> bool:
        roles = all(world.can_spare(role) for role in ("supervisor", "rm", "proxy"))
        return roles and bool(victims(world))

    def do(self, world: World, dice: random.Random) -> Hit:
        number = dice.randint(2, 4)
        kinds = dice.sample(["supervisor", "rm", "proxy", "slice"], number)
        hit: list[Process] = []
        words = []
        if "slice" in kinds:
            workers = choose(world, dice)
            index = workers[0].slice
            world.cause(index)
            world.spend(f"slice {index}")
            hit += [worker.process for worker in workers]
            words.append(f"the hosts of slice {index}")
        for role in kinds:
            if role != "slice" and (found := world.actors.named(role)):
                world.spend(role)
                hit.append(found[0])
                words.append(f"the {role}")
        send(signal.SIGKILL, *hit)
        return Hit(f"SIGKILL to {', '.join(words)}", world.healthy)


def process_faults() -> list[Fault]:
    """Those of single processes, which every service can meet."""
    return [
        LoseSlice("kill a worker", 3.0, signal.SIGKILL),
        LoseSlice("kill all workers of a slice", 1.0, signal.SIGKILL, hosts=99),
        LoseSlice("end a worker by SIGTERM", 1.0, signal.SIGTERM),
        # At once, and with exit code 0.
        LoseSlice("end a worker by SIGINT", 1.0, signal.SIGINT),
        StopWorker(),
        KillComponent("supervisor", 1.5),
        KillComponent("rm", 1.5),
        KillComponent("proxy", 1.5),
        KillGuard(),
        StopComponent("supervisor", 10.0),
        StopComponent("rm", 30.0),
        StopComponent("proxy", 30.0),
        KillSeveral(),
    ]
