# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""One frozen look at the world. A part that can't be seen is marked so, never guessed."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pathways_slurm import maintenance, notices
from pathways_slurm.component import ComponentProcess
from pathways_slurm.decide import newest_tasks
from pathways_slurm.decide_nodes import nodes_to_look_at
from pathways_slurm.logs import get_logger
from pathways_slurm.model import Component, ComponentView, Memory, Observation
from pathways_slurm.paths import ServicePaths
from pathways_slurm.probe import Endpoint, Prober, Proof, answering
from pathways_slurm.runtime_files import Orders, Report, stamp
from pathways_slurm.scheduler.base import Power, Scheduler, SchedulerUnavailable, Task
from pathways_slurm.states import ServicePhase, TaskState

_log = get_logger(__name__)

# For the answer of a component that has only just begun to listen, if at all.
_GLANCE_S = 0.1


@dataclass(frozen=True)
class Observer:
    """Looks at scheduler, processes, ports and files.

    Attributes:
        scheduler: Holds the arrays.
        processes: RM and proxy.
        endpoints: Where RM and proxy answer; empty for a run that is only being ended.
        worker_port: Of every host.
        worker_proof: What counts as a worker's answer.
        prober: Asks them.
        published: Tells whether cluster.env names this run's proxy; None if that can't be seen.
        paths: Of the files that others write for the supervisor, and it for them.
        clock: Unix time in seconds.
    """

    scheduler: Scheduler
    processes: Mapping[Component, ComponentProcess]
    endpoints: Mapping[Component, Endpoint]
    worker_port: int
    worker_proof: Proof
    prober: Prober
    published: Callable[[], bool | None]
    paths: ServicePaths
    clock: Callable[[], float] = time.time

    def stamps(self) -> tuple[object, ...]:
        """Differs once there is something new to read; costs next to nothing."""
        paths = self.paths
        return tuple(map(stamp, (paths.report, paths.acknowledgements, paths.maintenance)))

    def begun_to_answer(self, starting: Iterable[Component]) -> bool:
        """Whether one of these components answers; costs the scheduler nothing."""
        asked = [self.endpoints[component] for component in starting if component in self.endpoints]
        return bool(answering(asked, _GLANCE_S)) if asked else False

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

        power = None if tasks is None else self._power(memory)
        hosts = self._hosts(tasks or ())
        published = self.published()
        if published is None:
            # Nothing is written or removed that can't be read.
            published = memory.phase in (ServicePhase.READY, ServicePhase.DEGRADED)
        asked = dict.fromkeys(self.endpoints.values(), Proof.SPEAKS)
        for group in hosts.values():
            asked |= dict.fromkeys(group, self.worker_proof)
        answers = self.prober.ask(asked)
        components = {c: self._component(c, answers) for c in Component}
        # After the tasks: the end of a run is then never older than what is read about it.
        files = _Files(self.paths, {})
        return Observation(
            tasks=tasks,
            stale_reason=stale_reason,
            silent={
                index: tuple(host for host, where in enumerate(group) if where not in answers)
                for index, group in hosts.items()
            },
            components=components,
            published=published,
            stop_reason=stop_reason or self.scheduler.eviction(),
            found=found,
            # What a resource manager said that is gone may no longer be so.
            report=files.report() if components[Component.RM].alive else None,
            orders=files.orders(),
            announced=files.announced(),
            acknowledged=files.acknowledged(),
            maintenance=files.maintenance(),
            power=power,
            faults=files.faults,
        )

    def _power(self, memory: Memory) -> Mapping[str, Power] | None:
        """Of nodes that something is done about, now and then; None if there are none."""
        names = nodes_to_look_at(memory.nodes, self.clock())
        try:
            return self.scheduler.power(names) if names else None
        except SchedulerUnavailable:
            return None

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


@dataclass(frozen=True)
class _Files:
    """Reads them; what can't be read is in ``faults`` and says nothing."""

    paths: ServicePaths
    faults: dict[str, str]

    def report(self) -> Report | None:
        return self._read("the resource manager's report", Report.read, self.paths.report)

    def orders(self) -> Orders | None:
        return self._read("the orders", Orders.read, self.paths.orders)

    def announced(self) -> notices.Notices | None:
        return self._read("the notices", notices.read, self.paths.notices)

    def acknowledged(self) -> frozenset[tuple[int, int]]:
        directory = self.paths.acknowledgements
        return self._read("acknowledgements", notices.acknowledged, directory) or frozenset()

    def maintenance(self) -> Mapping[int, maintenance.Request] | None:
        refused: list[str] = []
        asked = self._read(
            "requests for maintenance",
            lambda path: maintenance.requests(path, refused.append),
            self.paths.maintenance,
        )
        if refused:
            self.faults["a request for maintenance"] = "; ".join(refused)
        return asked

    def _read[T](self, what: str, read: Callable[[Path], T], path: Path) -> T | None:
        try:
            return read(path)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            self.faults[what] = f"can't be read, so it says nothing: {error}"
            return None
