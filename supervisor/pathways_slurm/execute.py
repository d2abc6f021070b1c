# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Performs a plan's actions. Each is idempotent: doing it again at the next look is harmless."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pathways_slurm import cluster_env, notices
from pathways_slurm.component import ComponentProcess
from pathways_slurm.model import Component, Memory, Submission
from pathways_slurm.paths import ServicePaths
from pathways_slurm.plan import (
    Action,
    Announce,
    Avoid,
    Cancel,
    Command,
    Forget,
    Notify,
    PowerDown,
    Publish,
    Release,
    Renew,
    Requeue,
    StartComponent,
    StopComponent,
    Submit,
    Withdraw,
)
from pathways_slurm.scheduler.base import ArraySpec, Scheduler


@dataclass(frozen=True, slots=True)
class Launch:
    """How the parts of a service are started; pure functions of its settings.

    Attributes:
        commands: argv and environment of RM and proxy.
        array: The array to submit for a submission.
        cluster_env: Writes the discovery file.
    """

    commands: Mapping[Component, tuple[tuple[str, ...], Mapping[str, str]]]
    array: Callable[[Submission], ArraySpec]
    cluster_env: Callable[[], None]


@dataclass(frozen=True)
class Executor:
    """Does what a plan says. ``launch`` is None where a run can only be ended."""

    scheduler: Scheduler
    processes: Mapping[Component, ComponentProcess]
    paths: ServicePaths
    launch: Launch | None

    def perform(self, action: Action, memory: Memory) -> Memory:
        """Performs one action and returns the memory with what it taught.

        Raises:
            SchedulerUnavailable: Not known to be done; the next plan repeats it.
            SchedulerError: The scheduler refuses.
            OSError: A file could not be written or a process not started.
        """
        match action:
            case Submit(submission):
                spec = replace(self._launch().array(submission), avoid=memory.nodes.kept_off)
                array_id = self.scheduler.submit(spec)
                return memory.with_array(submission.tag, array_id)
            case Requeue(task_id):
                self.scheduler.requeue(task_id)
            case Release(task_id):
                self.scheduler.release(task_id)
            case Cancel(task_ids):
                self.scheduler.cancel(task_ids)
            case StartComponent(component):
                argv, env = self._launch().commands[component]
                self.processes[component].start(argv, env)
            case StopComponent(component, force=True):
                self.processes[component].kill()
            case StopComponent(component):
                self.processes[component].stop()
            case Notify(task_id, _, number):
                self.scheduler.notify([task_id], number)
            case PowerDown(index, nodes):
                return _freed(memory, index, self.scheduler.power_down(nodes))
            case Renew(nodes):
                taken = self.scheduler.power_down(nodes)
                return replace(memory, nodes=memory.nodes.with_order(nodes, taken))
            case Avoid(task_id, _, incarnation, nodes):
                done = self.scheduler.avoid(task_id, nodes)
                learned = memory.nodes.with_avoidance(task_id, incarnation, nodes, done)
                return replace(memory, nodes=learned)
            case Command(orders):
                orders.write(self.paths.orders)
            case Announce(content):
                notices.write(self.paths.notices, content)
            case Forget(answers):
                notices.forget(self.paths.acknowledgements, answers)
            case Publish():
                self._launch().cluster_env()
            case Withdraw():
                cluster_env.remove(self.paths.cluster_env, memory.run_id)
        return memory

    def _launch(self) -> Launch:
        if self.launch is None:
            raise RuntimeError("a run that is only being ended starts nothing")
        return self.launch


def _freed(memory: Memory, index: int, powered_down: bool) -> Memory:
    kept = memory.slice(index)
    if kept.maintenance is None:
        return memory
    freed = "its nodes are free (they can't be powered down from here)"
    if powered_down:
        freed = "its nodes are powered down"
    asked = replace(kept.maintenance, freed=freed)
    return replace(memory, slices={**memory.slices, index: replace(kept, maintenance=asked)})
