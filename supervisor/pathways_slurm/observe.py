# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""One frozen look at the world. A part that can't be seen is marked so, never guessed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog

from pathways_slurm.component import ComponentProcess
from pathways_slurm.decide import newest_tasks
from pathways_slurm.model import Component, ComponentView, Memory, Observation
from pathways_slurm.probe import Endpoint, answering
from pathways_slurm.scheduler.base import Scheduler, SchedulerUnavailable, Task
from pathways_slurm.states import ServicePhase, TaskState

_log = structlog.get_logger()


@dataclass(frozen=True)
class Observer:
    """Looks at scheduler, processes, ports and files.

    Attributes:
        scheduler: Holds the arrays.
        processes: RM and proxy.
        endpoints: Where RM and proxy answer; empty for a run that is only being ended.
        worker_port: Of every host.
        published: Tells whether cluster.env names this run's proxy; None if that can't be seen.
    """

    scheduler: Scheduler
    processes: Mapping[Component, ComponentProcess]
    endpoints: Mapping[Component, Endpoint]
    worker_port: int
    published: Callable[[], bool | None]

    def look(self, memory: Memory, stop_reason: str) -> Observation:
        """Takes one snapshot. Never raises for what merely can't be reached."""
        found: dict[str, str] = {}
        tasks: tuple[Task, ...] | None = None
        stale_reason = ""
        try:
            for submission in memory.submissions:
                if not submission.array_id and (known := self.scheduler.find(submission.tag)):
                    found[submission.tag] = known
            known_ids = [s.array_id for s in memory.submissions if s.array_id]
            tasks = self.scheduler.tasks([*known_ids, *found.values()])
        except SchedulerUnavailable as error:
            stale_reason = str(error) or "no answer"

        hosts = self._hosts(tasks or ())
        published = self.published()
        if published is None:
            # Nothing is written or removed that can't be read.
            published = memory.phase in (ServicePhase.READY, ServicePhase.DEGRADED)
        everyone = {*self.endpoints.values(), *(h for group in hosts.values() for h in group)}
        answers = answering(everyone)
        return Observation(
            tasks=tasks,
            stale_reason=stale_reason,
            silent={
                index: tuple(host for host, where in enumerate(group) if where not in answers)
                for index, group in hosts.items()
            },
            components={c: self._component(c, answers) for c in Component},
            published=published,
            stop_reason=stop_reason or self.scheduler.eviction(),
            found=found,
        )

    def _hosts(self, tasks: tuple[Task, ...]) -> dict[int, list[Endpoint]]:
        running = {
            index: task
            for index, task in newest_tasks(tasks).items()
            if task.state is TaskState.RUNNING and task.nodes
        }
        return {
            index: [(node.address, self.worker_port) for node in task.nodes]
            for index, task in running.items()
        }

    def _component(self, component: Component, answers: frozenset[Endpoint]) -> ComponentView:
        try:
            process = self.processes[component].status()
        except OSError as error:
            # Not seen is not gone: its port is all that is left to go by.
            _log.warning("a status file can't be read", component=component, error=str(error))
            answers_now = self.endpoints.get(component) in answers
            return ComponentView(alive=True, answers=answers_now)
        return ComponentView(
            alive=process.alive,
            answers=process.alive and self.endpoints.get(component) in answers,
            ended=process.ended,
            pid=process.pid,
        )
