# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Puts a service together from its settings, or from the record of a run that must be ended."""

import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace

from pathways_slurm import cluster_env, launch, notices
from pathways_slurm.cleanup import Cleanup
from pathways_slurm.component import ComponentProcess
from pathways_slurm.config import Settings
from pathways_slurm.decide_stop import EXIT_STOPPED, begin_stop
from pathways_slurm.events import EventLog, Reason
from pathways_slurm.execute import Executor, Launch
from pathways_slurm.faults import SettingsError
from pathways_slurm.logs import get_logger
from pathways_slurm.model import Component, Memory, Observation, Rules
from pathways_slurm.node_memory import NodeRules
from pathways_slurm.observe import Observer
from pathways_slurm.paths import ServicePaths
from pathways_slurm.plan import Note
from pathways_slurm.preflight import preflight
from pathways_slurm.probe import Endpoint, Prober, Proof
from pathways_slurm.processes import ProcessIdentity, open_pidfd
from pathways_slurm.scheduler.base import Node, Scheduler, SchedulerUnavailable
from pathways_slurm.schedulers import make_scheduler, scheduler_of_record, service_was_restarted
from pathways_slurm.service import Service
from pathways_slurm.service_lock import AlreadyRunning, service_lock
from pathways_slurm.states import ServicePhase
from pathways_slurm.status import StatusFile, describe
from pathways_slurm.store import RunRecord, load_record, save_record
from pathways_slurm.wakeup import Wakeup

_log = get_logger(__name__)

# From SIGTERM to SIGKILL of RM and proxy, which keep nothing that they would have to save.
_GRACE_S = 5.0

# Between two questions to a scheduler that does not answer at the start, or two for the lock.
_ASK_AGAIN_S = 1.0

# A supervisor whose job Slurm has started again elsewhere sees that at its next look, and then has
# its time to end everything.
_GIVE_WAY_S = 90.0

_OVER = (ServicePhase.STOPPED, ServicePhase.FAILED)


def supervise(settings: Settings, root: ProcessIdentity) -> int:
    """Runs the service until it has ended; returns the exit code.

    Args:
        settings: Checked ones.
        root: Process the run belongs to. If it is the one that the record on disk names, the run
            is adopted with its RM, proxy and array; a run of any other root is ended first.

    Raises:
        AlreadyRunning: Another supervisor runs this service.
        RecordError: The record on disk can't be read.
        SettingsError: This machine can't serve the settings: ports in use, and the like.
        SchedulerError: The scheduler can't tell where this machine is reached.
    """
    paths = settings.paths
    with Wakeup(open_pidfd(root)) as wakeup, _lock(settings, wakeup):
        record = load_record(paths.record)
        if record is not None and record.memory.phase not in _OVER and record.root != root:
            code = _end(paths, record, wakeup, "its supervisor is gone and a new service starts")
            if code != EXIT_STOPPED and record.root.boot_id == root.boot_id:
                # What may be left of it would be in the way of the new one, or meet it. What is
                # left on another machine can't be ended from here, and ends by itself.
                return code
            record = None
        scheduler = make_scheduler(settings)
        node = _service_node(scheduler, wakeup)
        if node is None:
            return EXIT_STOPPED
        cleanup = Cleanup(settings)
        if record is not None and record.memory.phase not in _OVER:
            _adopt(paths, record)
            cleanup.adopt()
        else:
            record = _begin(settings, root, node, cleanup.service_job)
        code = _start(settings, record, scheduler, node, cleanup).run(wakeup)
        last = load_record(paths.record)
        # A job that Slurm has started again elsewhere has one that waits for its end.
        if last is not None and last.memory.phase in _OVER and not scheduler.eviction():
            cleanup.withdraw()
        return code


def _adopt(paths: ServicePaths, record: RunRecord) -> None:
    words = f"a new supervisor goes on with run {record.memory.run_id}"
    _log.info(words)
    # A full disk must not end a service that can do without one.
    with suppress(OSError):
        EventLog(paths.events).append(Note(Reason.SupervisorAdopted, words))


@contextmanager
def _lock(settings: Settings, wakeup: Wakeup) -> Iterator[None]:
    """The service's lock; a run that is on its way out gets the time that it needs."""
    with ExitStack() as stack:
        began = time.monotonic()
        while True:
            try:
                stack.enter_context(service_lock(settings.paths.lock))
                break
            except AlreadyRunning as error:
                gives_way = service_was_restarted(settings) or _is_ending(settings.paths)
                # Who has only just taken the lock may not have said yet that it is to end a run.
                patience_s = _GIVE_WAY_S if gives_way else _ASK_AGAIN_S
                if wakeup.stop_reason or time.monotonic() - began >= patience_s:
                    raise
                _log.info("waiting for the run before this one to end", error=str(error))
                wakeup.wait(_ASK_AGAIN_S)
        yield


def _is_ending(paths: ServicePaths) -> bool:
    record = load_record(paths.record)
    return record is not None and record.memory.phase in (ServicePhase.STOPPING, *_OVER)


def _service_node(scheduler: Scheduler, wakeup: Wakeup) -> Node | None:
    """This machine as the slices reach it; None if the service is asked to end meanwhile."""
    while not wakeup.stop_reason:
        try:
            return scheduler.service_node()
        except SchedulerUnavailable as error:
            _log.warning("waiting for the scheduler", error=str(error))
            wakeup.wait(_ASK_AGAIN_S)
    return None


def _begin(settings: Settings, root: ProcessIdentity, node: Node, service_job: str) -> RunRecord:
    # Only now that no earlier run is left: it held the ports that this one needs.
    if faults := preflight(settings, service_address=node.address):
        raise SettingsError(faults)
    paths = settings.paths
    # Words of an earlier run about incarnations that this one has as well.
    for file in (paths.cluster_env, paths.report, paths.orders):
        file.unlink(missing_ok=True)
    notices.remove(paths.notices, paths.acknowledgements)
    memory = Memory(run_id=uuid.uuid4().hex[:12], since=time.time())
    words = f"run {memory.run_id} starts: {settings.max_slices} slices of "
    words += f"{settings.tpu_type} {settings.slice_shape}, at least {settings.min_slices}"
    EventLog(paths.events).append(Note(Reason.ServiceStarting, words))
    network = str(settings.local_network)
    return RunRecord(memory, root, settings.scheduler, network, service_job)


def end_leftovers(paths: ServicePaths, reason: str, service_job: str = "") -> int:
    """Ends what a dead supervisor left, if anything; returns 0 if nothing is left.

    Args:
        paths: Of the service.
        reason: For the events.
        service_job: Only what a service that was this Slurm job has left.

    Raises:
        AlreadyRunning: Its supervisor lives.
        RecordError: The record on disk can't be read.
    """
    if not paths.state.is_dir():
        return 0
    with service_lock(paths.lock), Wakeup() as wakeup:
        record = load_record(paths.record)
        if record is None or record.memory.phase in _OVER:
            return 0
        if service_job and record.service_job != service_job:
            return 0
        return _end(paths, record, wakeup, reason)


def _end(paths: ServicePaths, record: RunRecord, wakeup: Wakeup, reason: str) -> int:
    _log.warning("ending an earlier run", run=record.memory.run_id, why=reason)
    # Anew, also where an earlier attempt has given up: with all the time that ending may take.
    memory = begin_stop(record.memory, reason, EXIT_STOPPED, time.time())
    record = replace(record, memory=memory)
    with suppress(OSError):
        # A service that is started meanwhile sees that it has to wait.
        save_record(paths.record, record)
    # Only what is left of the run matters now; limits and ports do not.
    rules = Rules(min_slices=0, max_slices=1 + max(record.memory.slices, default=-1))
    scheduler = scheduler_of_record(paths, record)
    parts = _Parts(paths, record, rules, scheduler, {}, (0, Proof.CONNECTS), None)
    return parts.run(wakeup, stop_reason=reason)


def _start(
    settings: Settings, record: RunRecord, scheduler: Scheduler, node: Node, cleanup: Cleanup
) -> "_Parts":
    rules = Rules(
        min_slices=settings.min_slices,
        max_slices=settings.max_slices,
        component_budget=(settings.restart_budget, settings.restart_window_s),
        slice_budget=(settings.slice_restart_budget, settings.slice_restart_window_s),
        budgets=settings.budgets,
        on_budget=settings.on_budget,
        tick_s=settings.tick_s,
        start_timeout_s=settings.start_timeout_s,
        heartbeat_timeout_s=settings.heartbeat_timeout_s,
        notice_s=settings.notice_s,
        nodes=_node_rules(settings),
    )
    paths, host = settings.paths, node.address
    endpoints = {
        Component.RM: (host, settings.rm_port),
        Component.PROXY: (host, settings.proxy_port),
    }
    run_id = record.memory.run_id
    how = Launch(
        commands={
            Component.RM: (launch.rm_argv(settings), launch.rm_env(settings, host)),
            Component.PROXY: (
                launch.proxy_argv(settings, host),
                launch.proxy_env(settings, host),
            ),
        },
        array=lambda submission: launch.array_spec(
            settings, submission.tag, host, submission.indices, submission.first_incarnation
        ),
        cluster_env=lambda: cluster_env.write(
            paths.cluster_env, cluster_env.ClusterEnv.of(settings, run_id, host)
        ),
    )
    # What Pathways' own workers say to a stranger is not known.
    proof = Proof.SPEAKS if settings.runtime == "emulator" else Proof.CONNECTS
    workers = (settings.worker_port, proof)
    return _Parts(paths, record, rules, scheduler, endpoints, workers, how, cleanup)


def _node_rules(settings: Settings) -> NodeRules | None:
    if settings.scheduler == "local":
        return None  # every node is this machine
    return NodeRules(
        budget=settings.node_budget,
        window_s=settings.node_window_s,
        exclusion_s=settings.node_exclusion_s,
        power_down=settings.power_down == "auto",
    )


@dataclass(frozen=True)
class _Parts:
    """What a service is made of. ``workers``: their port, and what counts as an answer there."""

    paths: ServicePaths
    record: RunRecord
    rules: Rules
    scheduler: Scheduler
    endpoints: Mapping[Component, Endpoint]
    workers: tuple[int, Proof]
    launch: Launch | None
    cleanup: Cleanup | None = None

    def run(self, wakeup: Wakeup, stop_reason: str = "") -> int:
        """See :meth:`Service.run`."""
        with Prober() as prober:
            return self._service(prober).run(wakeup, stop_reason)

    def _service(self, prober: Prober) -> Service:
        run_id = self.record.memory.run_id
        processes = {
            component: ComponentProcess(
                status_file=self.paths.component_status(component),
                log=self.paths.component_log(component),
                root=self.record.root,
                grace_s=_GRACE_S,
                withdraw=(
                    (self.paths.cluster_env, run_id) if component is Component.PROXY else None
                ),
            )
            for component in Component
        }
        status = StatusFile(self.paths.status)

        def show(memory: Memory, seen: Observation) -> None:
            status.write(describe(self.rules, memory, seen, self.endpoints, time.time()))
            # Not before there is an array, whose place in the queue comes first.
            if self.cleanup is not None and any(s.array_id for s in memory.submissions):
                self.cleanup.book()

        def published() -> bool | None:
            try:
                return cluster_env.run_id_of(self.paths.cluster_env) == run_id
            except OSError:
                return None

        return Service(
            rules=self.rules,
            memory=self.record.memory,
            observer=Observer(
                self.scheduler,
                processes,
                self.endpoints,
                *self.workers,
                prober,
                published,
                self.paths,
            ),
            executor=Executor(self.scheduler, processes, self.paths, self.launch),
            events=EventLog(self.paths.events),
            save=lambda memory: save_record(self.paths.record, replace(self.record, memory=memory)),
            show=show,
        )
