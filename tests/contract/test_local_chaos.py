# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The local scheduler while anything of it is killed at any moment."""

import contextlib
import os
import random
import signal
import subprocess
from collections.abc import Callable

import pytest
from tests.contract.local_harness import LocalHarness

from pathways_slurm.processes import send_signal
from pathways_slurm.scheduler.base import SchedulerError
from pathways_slurm.states import TaskState

SLICES = 2
HOSTS = 2


class Chaos:
    """Random faults and orders, and what must hold between any two of them."""

    def __init__(self, local: LocalHarness, seed: int) -> None:
        self.local = local
        self.random = random.Random(seed)
        self.scheduler = local.scheduler()
        # Hosts that fork nothing: when runner and keeper are both killed, before either could end
        # the other's part, what a host had forked stays.
        self.array = self.scheduler.submit(local.spec(slices=SLICES, hosts=HOSTS))
        local.running(self.array)
        self.restarts = dict.fromkeys(range(SLICES), 0)

    def act(self) -> str:
        """One fault or order, on a slice in whatever state it is."""
        index = self.random.randrange(SLICES)
        acts: list[Callable[[int], None]] = [
            self._requeue,
            self._requeue,
            self._requeue_and_die,
            self._kill_host,
            self._kill_runner,
            self._kill_keeper,
        ]
        act = self.random.choice(acts)
        act(index)
        return f"{act.__name__}({index})"

    def check(self) -> None:
        """At most one incarnation of a slice lives, and restarts only ever grow."""
        reports = self.local.reports()
        for index in range(SLICES):
            # All of these had started before the first of them was looked at.
            incarnations = {
                report.incarnation
                for report in reports
                if report.slice == index and self.local.lives(report.pid)
            }
            assert len(incarnations) <= 1, f"slice {index}"
        for task in self.scheduler.tasks([self.array]):
            assert task.restarts >= self.restarts[task.index]
            assert task.state is not TaskState.UNKNOWN
            self.restarts[task.index] = task.restarts

    def settle(self) -> None:
        """Every slice can be brought back."""
        for index in range(SLICES):
            task_id = f"{self.array}_{index}"
            self.scheduler.requeue(task_id)
        tasks = self.local.running(self.array)
        assert sorted(tasks) == list(range(SLICES))
        for index in range(SLICES):
            assert len(self.local.live(index)) == HOSTS

    def _requeue(self, index: int) -> None:
        self.scheduler.requeue(f"{self.array}_{index}")

    def _requeue_and_die(self, index: int) -> None:
        caller = self.local.elsewhere("requeue", f"{self.array}_{index}")
        with contextlib.suppress(subprocess.TimeoutExpired):
            # Not to wait for something: the moment of the kill is what varies.
            caller.communicate(timeout=self.random.uniform(0.05, 0.2))
        caller.kill()
        caller.communicate()

    def _kill_host(self, index: int) -> None:
        for report in self.local.live(index)[:1]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(report.pid, signal.SIGKILL)

    def _kill_runner(self, index: int) -> None:
        send_signal(self.local.runner(f"{self.array}_{index}"), signal.SIGKILL)

    def _kill_keeper(self, index: int) -> None:
        with contextlib.suppress(FileNotFoundError, ValueError, ProcessLookupError):
            self.local.signal_keeper(f"{self.array}_{index}", signal.SIGKILL)


@pytest.mark.parametrize("seed", [1, 2])
def test_no_fault_makes_two_of_one_slice_or_leaves_anything(local: LocalHarness, seed: int) -> None:
    chaos = Chaos(local, seed)
    for _ in range(25):
        # Shown by pytest if the test fails.
        print(chaos.act())
        chaos.check()
    chaos.settle()
    chaos.check()
    # The harness checks that nothing is left.


def test_cancel_wins_over_requeue_at_any_moment(local: LocalHarness) -> None:
    scheduler = local.scheduler()
    for turn in range(5):
        array = scheduler.submit(local.spec())
        callers = [
            local.elsewhere(verb, argument)
            for verb, argument in (
                ("requeue", f"{array}_0"),
                ("cancel", [f"{array}_0"]),
                ("requeue", f"{array}_0"),
            )
        ]
        for caller in callers:
            with contextlib.suppress(SchedulerError):
                local.result(caller)
        assert local.ended(f"{array}_0").state is TaskState.CANCELLED, turn
        local.until(lambda: not local.survivors(), "nothing is left")
