# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Array tasks as processes of this machine: the embedded default scheduler.

There is no daemon. Everything is in files below one directory, so any number of processes can use
it, and tasks outlive them all. Each live task has a runner (``local_task``), started by whoever
finds that the task should run and none runs it: at the submission, or at a later look if the
submitter was killed before.
"""

import contextlib
import errno
import hashlib
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import IPv4Network
from pathlib import Path

import pathways_slurm
from pathways_slurm import processes
from pathways_slurm.files import make_private_dir, sync_dir
from pathways_slurm.scheduler.base import (
    ArraySpec,
    Node,
    Power,
    SchedulerError,
    SchedulerUnavailable,
    Task,
)
from pathways_slurm.scheduler.local_records import Intent, Record, Spec
from pathways_slurm.scheduler.local_store import ArrayStore, CorruptRecordError, RunnerSlot
from pathways_slurm.scheduler.local_submission import full_spec
from pathways_slurm.scheduler.local_view import (
    RUNNER_LOST,
    format_task_id,
    observed,
    parse_task_id,
    service_node,
)
from pathways_slurm.states import TaskState

_RUNNER = "pathways_slurm.scheduler.local_task"
_PREFIX = "local-"
_NEW, _OLD = ".new-", ".old-"
# Ended arrays stay for questions about them; a week is longer than anyone asks.
_KEEP_S = 7 * 24 * 3600.0
# An array that is in use for longer is not old.
_BUSY_S = 0.05


class LocalScheduler:
    """Implements :class:`pathways_slurm.scheduler.base.Scheduler`.

    Slice S's host H has the node name ``slice-S-host-H`` and the address ``.(1+S).(1+H)`` of the
    network; the machine itself is ``service`` at ``.0.1``.
    """

    def __init__(
        self,
        directory: Path,
        network: IPv4Network,
        kill_wait_s: float = 5.0,
        requeue_delay_s: float = 0.0,
    ) -> None:
        """Touches no file: ``directory`` is created by the first submission.

        Args:
            directory: Where arrays are kept.
            network: Loopback network of the nodes' addresses, such as 127.0.0.0/16.
            kill_wait_s: From SIGTERM to SIGKILL when a run ends, however it does; an array keeps
                that of its submission. Short on purpose: it ends runs that hang, and those of a
                service that ends. Nothing is saved in it: for that hosts are notified first.
            requeue_delay_s: How long a requeued task stays PENDING (BeginTime) unless released,
                as it does for a while under Slurm.
        """
        self._directory = directory.absolute()
        self._network = network
        self._kill_wait_s = kill_wait_s
        self._requeue_delay_s = requeue_delay_s

    def service_node(self) -> Node:
        """See the protocol."""
        return service_node(self._network)

    def find(self, tag: str) -> str | None:
        """See the protocol."""
        store = self._store(_array_id(tag))
        return None if store is None else store.array_id

    def submit(self, spec: ArraySpec) -> str:
        """See the protocol. Also removes arrays whose tasks all ended a week ago."""
        with _refusals():
            array_id = _array_id(spec.tag)
            if self._store(array_id) is None:
                self.prune(_KEEP_S)
                self._create(array_id, full_spec(spec, self._network, self._kill_wait_s))
        # Starts what is pending; also that of a submitter that was killed before it could.
        self.tasks([array_id])
        return array_id

    def tasks(self, array_ids: Sequence[str]) -> tuple[Task, ...]:
        """See the protocol. An array that is not known (any more) has no tasks.

        A task that should run and has no runner gets one. A run whose runner was killed is put on
        record as NODE_FAIL.
        """
        found: list[Task] = []
        for array_id in dict.fromkeys(array_ids):
            store = self._store(array_id)
            if store is None:
                continue
            with _stale(), store.locked():
                spec = store.spec()
                found.extend(_look(store, spec, index) for index in spec.indices)
        return tuple(found)

    def requeue(self, task_id: str) -> None:
        """See the protocol."""
        with self._task(task_id) as (store, index):
            record = store.record(index)
            if record.intent.cancelled:
                raise SchedulerError(
                    f"task {task_id} was cancelled, which is for good; submit a new array instead"
                )
            if record.run is None or record.waits:
                # Whoever asked for the same before may have been killed before the telling.
                _tell(store, index)
                return
            now = time.time()
            delay = self._requeue_delay_s
            intent = Intent(record.run.restarts + 1, now, now + delay if delay else 0.0)
            store.write_intent(index, intent)
            store.log(f"task {index}: requeued, restarts {intent.restarts}")
            _tell(store, index)
            _look(store, store.spec(), index)

    def release(self, task_id: str) -> None:
        """See the protocol. Raises SchedulerError if there is no such task."""
        with self._task(task_id) as (store, index):
            record = store.record(index)
            if record.waits and record.intent.begin_at:
                store.write_intent(index, record.intent._replace(begin_at=0.0))
                store.log(f"task {index}: released")
                _tell(store, index)
                _look(store, store.spec(), index)

    def cancel(self, task_ids: Sequence[str]) -> None:
        """See the protocol."""
        for task_id in task_ids:
            with contextlib.suppress(_NoSuchTask), self._task(task_id) as (store, index):
                record = store.record(index)
                spec = store.spec()
                task = observed(spec, store.array_id, index, record, time.time())
                if task.state.ended:
                    continue
                if not record.intent.cancelled:
                    intent = record.intent._replace(cancelled=True, since=time.time())
                    store.write_intent(index, intent)
                    store.log(f"task {index}: cancelled")
                # Also for an earlier intent: who wrote it may have been killed before the telling.
                _tell(store, index)

    def notify(self, task_ids: Sequence[str], number: signal.Signals) -> None:
        """See the protocol. What a host has forked gets none."""
        for task_id in task_ids:
            with contextlib.suppress(_NoSuchTask), self._task(task_id) as (store, index):
                hosts = _hosts(store, index)
                reached = [host.pid for host in hosts if processes.send_signal(host, number)]
                if reached:
                    to = " ".join(map(str, reached))
                    store.log(f"task {index}: {number.name} to processes {to}")

    def eviction(self) -> str:
        """See the protocol. Nobody but the user starts a local service."""
        return ""

    def power_down(self, nodes: Sequence[str]) -> bool:
        """False: nobody makes this machine anew."""
        del nodes
        return False

    def power(self, nodes: Sequence[str]) -> Mapping[str, Power]:
        """Every node is this machine, which is there."""
        return dict.fromkeys(nodes, Power.ON)

    def avoid(self, task_id: str, nodes: Sequence[str]) -> bool:
        """False for any nodes: they are addresses of this machine."""
        with self._task(task_id):
            return not nodes

    def prune(self, older_than_s: float) -> None:
        """Forgets arrays whose tasks all ended more than ``older_than_s`` seconds ago."""
        if not self._directory.is_dir():
            return
        horizon = time.time() - older_than_s
        for path in self._directory.iterdir():
            if path.name.startswith((_NEW, _OLD)):
                # What a killed submission or removal left; one that is under way is young.
                if path.stat().st_mtime < time.time() - _KEEP_S:
                    shutil.rmtree(path, ignore_errors=True)
            elif path.name.startswith(_PREFIX):
                self._prune_array(ArrayStore(path), horizon)

    def _prune_array(self, store: ArrayStore, horizon: float) -> None:
        # An array that can't be read, or is busy, is kept: nothing depends on its removal.
        with contextlib.suppress(OSError, CorruptRecordError), store.locked(_BUSY_S):
            spec = store.spec()
            now = time.time()
            for index in spec.indices:
                task = observed(spec, store.array_id, index, store.record(index), now)
                if not task.state.ended or task.since > horizon:
                    return
            # Renamed first: from then on nobody finds it, however long the removal takes.
            doomed = self._directory / f"{_OLD}{store.array_id}-{os.getpid()}"
            store.directory.rename(doomed)
            shutil.rmtree(doomed, ignore_errors=True)

    def _create(self, array_id: str, spec: Spec) -> None:
        """Makes the array's directory in one step; another's array of the same tag stays."""
        make_private_dir(self._directory)
        for index in spec.indices:
            make_private_dir(Path(spec.log_dir) / f"slice-{index}")
        draft = ArrayStore(Path(tempfile.mkdtemp(prefix=_NEW, dir=self._directory)))
        try:
            draft.write_spec(spec)
            now = time.time()
            for index in spec.indices:
                draft.make_task(index, Intent(restarts=0, since=now))
            draft.log(f"submitted with tag {spec.tag!r}")
            try:
                draft.directory.rename(self._directory / array_id)
            except OSError as fault:
                # One that is there is not empty, so it is never replaced; and it is as good.
                if fault.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                    raise
            sync_dir(self._directory)
        finally:
            shutil.rmtree(draft.directory, ignore_errors=True)

    def _store(self, array_id: str) -> ArrayStore | None:
        directory = self._directory / array_id
        if "/" in array_id or not array_id.startswith(_PREFIX) or not directory.is_dir():
            return None
        return ArrayStore(directory)

    @contextlib.contextmanager
    def _task(self, task_id: str) -> Iterator[tuple[ArrayStore, int]]:
        """A task's store, locked. Raises _NoSuchTask."""
        parsed = parse_task_id(task_id)
        store = None if parsed is None else self._store(parsed[0])
        if parsed is None or store is None:
            raise _NoSuchTask(task_id, self._directory)
        with _stale(), store.locked():
            if parsed[1] not in store.spec().indices:
                raise _NoSuchTask(task_id, self._directory)
            yield store, parsed[1]


class _NoSuchTask(SchedulerError):
    def __init__(self, task_id: str, directory: Path) -> None:
        super().__init__(
            f"there is no task {task_id!r} in {directory}; a task id is ARRAY_INDEX, such as "
            f"{_PREFIX}0123456789ab_3"
        )


def _array_id(tag: str) -> str:
    """The same tag gives the same id, so that a submission can't be made twice."""
    return _PREFIX + hashlib.sha256(tag.encode()).hexdigest()[:12]


def _look(store: ArrayStore, spec: Spec, index: int) -> Task:
    """A task as it is now, its runner started if it lacks one. While the array is locked."""
    now = time.time()
    try:
        slot = store.take_slot(index)
        try:
            record = Record(store.intent(index), store.run(index), runner_lives=slot is None)
            if record.lost:
                record = _settle(store, index, record, now)
            if slot is not None and record.waits:
                _start_runner(store, index, slot)
            return observed(spec, store.array_id, index, record, now)
        finally:
            if slot is not None:
                os.close(slot.descriptor)
    except CorruptRecordError as fault:
        return Task(
            format_task_id(store.array_id, index), index, TaskState.UNKNOWN, reason=str(fault)
        )


def _settle(store: ArrayStore, index: int, record: Record, now: float) -> Record:
    """Writes the end of a run whose runner could not."""
    if record.run is None:
        return record
    end = record.run._replace(state=TaskState.NODE_FAIL, reason=RUNNER_LOST, since=now, pids=())
    store.log(f"task {index}, restarts {end.restarts}: {end.state}: {end.reason}")
    store.write_run(index, end)
    return record._replace(run=end)


def _start_runner(store: ArrayStore, index: int, slot: RunnerSlot) -> None:
    # Standard library and this package only, so no site directories: that starts faster. The
    # runner has no use for the rest of our environment; the hosts' is in the array's spec.
    package = str(Path(pathways_slurm.__file__).parents[1])
    environment: Mapping[str, str] = {"PATH": os.defpath, "PYTHONPATH": package}
    runner = [sys.executable, "-S", "-s", "-P", "-m", _RUNNER]
    arguments = [str(store.directory), str(index), str(slot.descriptor)]
    output = store.open_log()
    try:
        processes.start_detached(
            [*runner, *arguments], env=environment, output=output, pass_fds=[slot.descriptor]
        )
    finally:
        os.close(output)
    store.log(f"task {index}: runner started")


def _hosts(store: ArrayStore, index: int) -> list[processes.ProcessIdentity]:
    """The hosts' processes of a running task. While the array is locked."""
    record = store.record(index)
    task = observed(store.spec(), store.array_id, index, record, time.time())
    runner = store.runner(index)
    if task.state is not TaskState.RUNNING or runner is None or not processes.is_alive(runner):
        return []
    # A pid on record may be another's by now; one of the runner's own descendants is not.
    return [host for host in processes.descendants(runner.pid) if host.pid in task.pids]


def _tell(store: ArrayStore, index: int) -> None:
    """Has a live runner look at the intent. One that starts just now will look by itself."""
    runner = store.runner(index)
    if runner is not None:
        processes.send_signal(runner, signal.SIGUSR1)


@contextlib.contextmanager
def _stale() -> Iterator[None]:
    """What keeps us from seeing or writing an array says nothing about its tasks."""
    try:
        yield
    except (OSError, CorruptRecordError) as fault:
        raise SchedulerUnavailable(f"the local scheduler can't use its files: {fault}") from fault


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except OSError as fault:
        raise SchedulerError(
            f"could not submit: {fault}. The directory must be writable and its disk not full"
        ) from fault
