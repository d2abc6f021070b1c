# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What the actions of a plan do to files and to the scheduler."""

import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from pathways_slurm import notices
from pathways_slurm.execute import Executor
from pathways_slurm.maintenance import Request
from pathways_slurm.model import MaintenanceMemory, Memory, SliceMemory
from pathways_slurm.notices import Notices
from pathways_slurm.paths import ServicePaths
from pathways_slurm.plan import Announce, Command, Forget, Notify, PowerDown
from pathways_slurm.runtime_files import Orders
from pathways_slurm.scheduler.local import LocalScheduler

MEMORY = Memory("run", slices={1: SliceMemory(maintenance=MaintenanceMemory(Request(9, "", 1)))})


class _Scheduler(LocalScheduler):
    def __init__(self, can_power_down: bool) -> None:
        self.can_power_down = can_power_down
        self.calls: list[object] = []

    def notify(self, task_ids: Sequence[str], number: signal.Signals) -> None:
        self.calls.append((tuple(task_ids), number))

    def power_down(self, nodes: Sequence[str]) -> bool:
        self.calls.append(tuple(nodes))
        return self.can_power_down


@pytest.fixture
def paths(tmp_path: Path) -> ServicePaths:
    found = ServicePaths(tmp_path)
    found.state.mkdir()
    return found


def test_what_is_told_is_in_its_file(paths: ServicePaths) -> None:
    executor = Executor(_Scheduler(True), {}, paths, None)
    assert executor.perform(Command(Orders(shutdown="over")), MEMORY) == MEMORY
    assert Orders.read(paths.orders) == Orders(shutdown="over")
    executor.perform(Announce(Notices("run", 3)), MEMORY)
    assert notices.read(paths.notices) == Notices("run", 3)


def test_answers_that_are_settled_are_removed(paths: ServicePaths) -> None:
    notices.acknowledge(paths.acknowledgements, 0, 1)
    notices.acknowledge(paths.acknowledgements, 1, 1)
    Executor(_Scheduler(True), {}, paths, None).perform(Forget(((0, 1),)), MEMORY)
    assert notices.acknowledged(paths.acknowledgements) == {(1, 1)}


def test_hosts_are_told_through_the_scheduler(paths: ServicePaths) -> None:
    scheduler = _Scheduler(True)
    Executor(scheduler, {}, paths, None).perform(Notify("7_1", 1, signal.SIGTERM), MEMORY)
    assert scheduler.calls == [(("7_1",), signal.SIGTERM)]


@pytest.mark.parametrize(
    ("can_power_down", "freed"),
    [
        (True, "its nodes are powered down"),
        (False, "its nodes are free (they can't be powered down from here)"),
    ],
)
def test_what_became_of_nodes_that_were_given_back_is_remembered(
    paths: ServicePaths, can_power_down: bool, freed: str
) -> None:
    scheduler = _Scheduler(can_power_down)
    after = Executor(scheduler, {}, paths, None).perform(PowerDown(1, ("n1",)), MEMORY)
    assert scheduler.calls == [("n1",)]
    kept = after.slice(1).maintenance
    assert kept is not None
    assert kept.freed == freed
