# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The contract suite's harness for the local scheduler."""

import os
import signal
from collections.abc import Callable
from functools import partial
from ipaddress import IPv4Network
from pathlib import Path

from tests.contract.harness import SchedulerHarness

from pathways_slurm.processes import ProcessIdentity, is_alive, send_signal
from pathways_slurm.scheduler.base import Scheduler
from pathways_slurm.scheduler.local import LocalScheduler
from pathways_slurm.scheduler.local_store import ArrayStore
from pathways_slurm.scheduler.local_view import parse_task_id

NETWORK = IPv4Network("127.63.0.0/16")


class LocalHarness(SchedulerHarness):
    """Tasks are processes of this machine."""

    patience_s = 15.0
    kill_wait_s = 0.6

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.arrays = directory / "arrays"

    def factory(self) -> Callable[[], Scheduler]:
        return partial(LocalScheduler, self.arrays, NETWORK, self.kill_wait_s)

    def delayed_factory(self) -> Callable[[], Scheduler]:
        return partial(LocalScheduler, self.arrays, NETWORK, self.kill_wait_s, 3600.0)

    def runner(self, task_id: str) -> ProcessIdentity:
        """The task's runner, or the last one it had."""
        parsed = parse_task_id(task_id)
        assert parsed is not None
        runner = ArrayStore(self.arrays / parsed[0]).runner(parsed[1])
        assert runner is not None
        return runner

    def keeper(self, task_id: str) -> int:
        """Pid of the process between a runner and its hosts."""
        runner = self.runner(task_id).pid
        (child,) = Path(f"/proc/{runner}/task/{runner}/children").read_text().split()
        return int(child)

    def signal_runner(self, task_id: str, number: signal.Signals) -> None:
        assert send_signal(self.runner(task_id), number)

    def signal_keeper(self, task_id: str, number: signal.Signals) -> None:
        os.kill(self.keeper(task_id), number)

    def close(self) -> None:
        super().close()
        scheduler = self.scheduler()
        found = [scheduler.find(tag) for tag in self.tags]
        arrays = [array for array in found if array is not None]
        for task in scheduler.tasks(arrays):
            self.until(partial(self._runner_ended, task.id), f"the runner of {task.id} ends")

    def _runner_ended(self, task_id: str) -> bool:
        parsed = parse_task_id(task_id)
        assert parsed is not None
        runner = ArrayStore(self.arrays / parsed[0]).runner(parsed[1])
        return runner is None or not is_alive(runner)
