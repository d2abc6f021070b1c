# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What can befall a service as a whole: its end, and another start."""

import random
import signal
from dataclasses import dataclass

from tests.chaos.faults import Fault, Hit, World
from tests.chaos.stage import send

_WORKS = ("READY", "DEGRADED")


@dataclass
class KillEverything:
    """kill -9 of root, supervisor, RM and proxy at once: what their guards are for."""

    name: str = "kill root and all below it"
    weight: float = 0.15

    def possible(self, world: World) -> bool:
        return world.field("service") in _WORKS

    def do(self, world: World, dice: random.Random) -> Hit:
        del dice

        def end() -> None:
            roles = ("root", "supervisor", "rm", "proxy")
            send(signal.SIGKILL, *(one for role in roles for one in world.actors.named(role)))

        world.renew(end)
        return Hit("SIGKILL to root, supervisor, RM and proxy; then started anew", world.healthy)


@dataclass
class PowerCut:
    """kill -9 of those and their guards: the end of the CPU node, on which nothing is left.

    Attributes:
        cleaned_up: Somebody else cleans up. If not, there is nobody either who could withdraw
            cluster.env; the next service has to.
    """

    cleaned_up: bool
    name: str = "cut the CPU node's power"
    weight: float = 0.1

    def possible(self, world: World) -> bool:
        return world.field("service") in _WORKS

    def do(self, world: World, dice: random.Random) -> Hit:
        del dice

        def end() -> None:
            roles = ("root", "supervisor", "guard", "rm", "proxy")
            send(signal.SIGKILL, *(one for role in roles for one in world.actors.named(role)))

        world.renew(end, withdrawn=self.cleaned_up)
        return Hit("SIGKILL to all on the CPU node; then started anew", world.healthy)


@dataclass
class StopService:
    """Its end by order, while everything runs."""

    name: str = "end the service by order"
    weight: float = 0.1

    def possible(self, world: World) -> bool:
        return world.field("service") in _WORKS

    def do(self, world: World, dice: random.Random) -> Hit:
        del dice
        world.renew(world.stage.stop)
        return Hit("ended by order; then started anew", world.healthy)


def service_faults(*, cleaned_up: bool) -> list[Fault]:
    """Those that every service can meet.

    Args:
        cleaned_up: The scheduler has a job that ends what a service leaves.
    """
    return [KillEverything(), PowerCut(cleaned_up), StopService()]
