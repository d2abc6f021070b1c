# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Array tasks as Slurm's, over its command line: sbatch, squeue, scontrol, scancel.

One squeue per look, of all the user's jobs: an array that is not listed any more would make a
question for it by id fail. Jobs are told apart by id and name, because a slurmctld that was killed
can give an id a second time.
"""

import os
import re
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pathways_slurm.logs import get_logger
from pathways_slurm.scheduler.base import (
    ArraySpec,
    Node,
    Power,
    SchedulerError,
    SchedulerUnavailable,
    Task,
)
from pathways_slurm.scheduler.slurm_avoid import Avoidance
from pathways_slurm.scheduler.slurm_command import Runner, SlurmClient, refusal, run_command
from pathways_slurm.scheduler.slurm_intents import IntentStore
from pathways_slurm.scheduler.slurm_nodes import NodeDirectory
from pathways_slurm.scheduler.slurm_options import (
    SlurmOptions,
    job_name,
    slice_constraint,
)
from pathways_slurm.scheduler.slurm_parse import (
    SQUEUE,
    Row,
    format_time,
    islands,
    parse_default_partition,
    parse_rows,
    parse_switches,
)
from pathways_slurm.scheduler.slurm_power import NodePower
from pathways_slurm.scheduler.slurm_service_job import ServiceJob
from pathways_slurm.scheduler.slurm_submission import Submissions
from pathways_slurm.scheduler.slurm_view import TaskView, never_ran
from pathways_slurm.states import TaskState

_log = get_logger(__name__)

DEFAULT_TIMEOUT_S = 15.0
# After a submission without a clear answer: how long Slurm must have answered and shown no array.
DEFAULT_SETTLE_S = 45.0

_SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "run_worker_slice.sh"
_TASK_ID = re.compile(r"([1-9][0-9]*)_([0-9]+)")
_POLL_S = 0.1
# Clocks of this machine and of slurmctld's may differ by less than this.
_LATE_S = 60.0
# Words of one scancel, far below any limit of a command line.
_SCANCEL_AT_ONCE = 500
# The first and only step of a run: srun, on all hosts.
_HOSTS_STEP = 0

# Refusals of orders that were overtaken: what was asked for is so already, or never will be.
_IS_PENDING = "pending execution"
_NOT_PENDING = ("no longer pending", "already finished", "already completing or completed")
_IS_OVER = ("invalid job id", *_NOT_PENDING)


class SlurmScheduler:
    """Implements :class:`pathways_slurm.scheduler.base.Scheduler`."""

    def __init__(
        self,
        directory: Path,
        options: SlurmOptions,
        *,
        service_address: str = "",
        timeout_s: float = DEFAULT_TIMEOUT_S,
        settle_s: float = DEFAULT_SETTLE_S,
        power_down: bool = True,
        environment: Mapping[str, str] | None = None,
        runner: Runner = run_command,
    ) -> None:
        """Touches no file and asks nothing of Slurm.

        Args:
            directory: For notes of submissions, created by the first; on a disk that the next
                supervisor of this service sees.
            options: Of the cluster.
            service_address: Of this machine, where Slurm does not know the right one.
            timeout_s: For each command.
            settle_s: For how long Slurm must show no array before one whose sbatch had no clear
                answer is submitted again.
            power_down: Whether to try that at all.
            environment: By default, that of this process.
            runner: Runs the commands.
        """
        self._environment = dict(os.environ if environment is None else environment)
        self._client = SlurmClient(timeout_s, self._environment, runner)
        self._options = options
        self._service_address = service_address
        self._nodes = NodeDirectory(self._client)
        self._submissions = Submissions(
            self._client, IntentStore(directory), options, _SCRIPT, settle_s
        )
        self._view = TaskView(self._submissions)
        self._power = NodePower(self._client, self._nodes, power_down)
        self._avoidance = Avoidance(self._client, self._nodes, options.extra_args, self._islands)
        self._job = ServiceJob.of(self._environment)
        self._eviction = ""

    def service_node(self) -> Node:
        """See the protocol. Raises SchedulerError if this machine's address can't be told."""
        host = socket.gethostname()
        name = self._environment.get("SLURMD_NODENAME") or host.partition(".")[0]
        if self._service_address:
            return Node(name, self._service_address)
        address = self._nodes.address(name) or self._address_outside(host)
        return Node(name, address)

    def find(self, tag: str) -> str | None:
        """See the protocol.

        Raises SchedulerUnavailable also while Slurm may yet take a submission with this tag.
        """
        return self._submissions.find(tag, self._look)

    def submit(self, spec: ArraySpec) -> str:
        """See the protocol."""
        if spec.avoid:
            spec = replace(spec, avoid=self._avoided(spec))
        return self._submissions.submit(
            spec, self._look, lambda: self._constraint(spec.hosts_per_task), self._environment
        )

    def tasks(self, array_ids: Sequence[str]) -> tuple[Task, ...]:
        """See the protocol. An array that Slurm does not list (any more) has no tasks.

        A second array of the same tag, which Slurm can only have taken very late, is cancelled.
        """
        if not array_ids:
            return ()
        rows = self._look()
        now = time.time()
        self._eviction = self._job.eviction(rows) if self._job else ""
        wanted = sorted(set(array_ids))
        self._cancel_seconds(rows, wanted)
        own = {
            array: [row for row in rows if row.array == array and self._view.is_ours(row)]
            for array in wanted
        }
        nodes = self._nodes.nodes_of([row for group in own.values() for row in group])
        found: list[Task] = []
        for array, group in own.items():
            found.extend(
                self._view.task(row, row.index, nodes.get(row.id, ()))
                for row in group
                if row.index is not None
            )
            found.extend(self._view.absent(array, group, now))
        return tuple(sorted(found, key=lambda task: (task.index, task.id)))

    def requeue(self, task_id: str) -> None:
        """See the protocol. Waits for the end of a run that is ending."""
        row = self._task(task_id)
        if row.state is TaskState.CANCELLED:
            # Slurm itself would run it again.
            raise SchedulerError(
                f"task {task_id} was cancelled, which is for good; submit a new array instead"
            )
        if row.state in (TaskState.PENDING, TaskState.HELD):
            return
        done = self._client.order("scontrol", "requeue", task_id)
        if done.code != 0 and _IS_PENDING not in done.words:
            raise refusal(done, f"task {task_id} was not requeued")

    def release(self, task_id: str) -> None:
        """See the protocol. Waits for the end of a run that is ending."""
        row = self._task(task_id)
        if row.state is TaskState.HELD:
            self._unless_overtaken(task_id, "scontrol", "release", task_id)
        if row.state is TaskState.HELD or row.waits_to_begin:
            # The owner may lift the time for which Slurm makes a requeued task wait.
            early = row.restarts > 0 and row.may_begin > time.time() - _LATE_S
            begin = format_time(row.may_begin) if early else "now"
            self._unless_overtaken(
                task_id, "scontrol", "update", f"jobid={task_id}", f"StartTime={begin}"
            )

    def cancel(self, task_ids: Sequence[str]) -> None:
        """See the protocol."""
        wanted = {task_id for task_id in task_ids if _TASK_ID.fullmatch(task_id)}
        if not wanted:
            return
        live = [
            row
            for row in self._look()
            if row.id in wanted and self._view.is_ours(row) and not row.state.ended
        ]
        self._scancel([row.id for row in live])
        waiting: dict[str, list[int]] = {}
        for row in live:
            if row.index is not None and never_ran(row):
                waiting.setdefault(row.array, []).append(row.index)
        self._view.withdraw(waiting, self._client.timeout_s)

    def notify(self, task_ids: Sequence[str], number: signal.Signals) -> None:
        """See the protocol. Reaches every process of a host, also what its program has forked."""
        rows = self._look() if task_ids else ()
        running = [
            row.id
            for row in rows
            if row.id in task_ids and row.state is TaskState.RUNNING and self._view.is_ours(row)
        ]
        # To the step that the batch script has become, and not to the job: with SIGKILL that would
        # be to cancel it, and with --full srun gets the signal, ends of many, and its step with it.
        steps = [f"{task_id}.{_HOSTS_STEP}" for task_id in running]
        name = number.name.removeprefix("SIG")
        self._scancel(steps, f"--signal={name}", refused=f"did not get {number.name}")

    def eviction(self) -> str:
        """See the protocol: what Slurm says of the job that this process belongs to."""
        return self._eviction

    def power_down(self, nodes: Sequence[str]) -> bool:
        """See the protocol. Takes the rights of an operator, or an administrator's rule for sudo.

        Raises SchedulerUnavailable.
        """
        if not nodes:
            return False
        ending = [row for row in self._look() if row.state is TaskState.COMPLETING]
        hanging = {
            name
            for row in ending
            if self._view.is_ours(row) and row.nodes
            for name in self._nodes.expand(row.nodes)
        }
        return self._power.down(nodes, frozenset(hanging))

    def power(self, nodes: Sequence[str]) -> Mapping[str, Power]:
        """See the protocol."""
        return self._power.look(nodes)

    def avoid(self, task_id: str, nodes: Sequence[str]) -> bool:
        """See the protocol. Raises SchedulerUnavailable also if the task is not pending."""
        rows = self._look()
        row = self._row(rows, task_id)
        if row.state not in (TaskState.PENDING, TaskState.HELD):
            raise SchedulerUnavailable(f"task {task_id} is not pending")
        slices = sum(other.array == row.array and not other.state.ended for other in rows)
        why = self._avoidance.apply(task_id, nodes, slices)
        if why:
            _log.warning("nodes are not excluded", task=task_id, nodes=list(nodes), why=why)
        return not why

    def _address_outside(self, host: str) -> str:
        """Of a machine that is no node of the cluster."""
        try:
            address = socket.gethostbyname(host)
        except OSError as fault:
            problem = f"its name has no address ({fault})"
        else:
            # Many distributions give a machine's own name a loopback address.
            if not _is_loopback(address) or any(
                _is_loopback(info.address) for info in self._nodes.infos()
            ):
                return address
            problem = f"its name has the address {address} only, which no other machine reaches"
        raise SchedulerError(
            f"this machine, {host}, is no node of the cluster, and {problem}; set "
            "PATHWAYS_SERVICE_ADDRESS to the address at which the slices' nodes reach it"
        )

    def _look(self) -> tuple[Row, ...]:
        """All jobs of the user, ended ones included, as long as Slurm keeps them."""
        text = self._client.look(*SQUEUE)
        try:
            return parse_rows(text)
        except ValueError as fault:
            raise SchedulerUnavailable(f"squeue's answer can't be read: {fault}") from fault

    def _task(self, task_id: str) -> Row:
        """The row of a task that is not about to end.

        Orders given while Slurm ends a run are lost, or act on the wrong one, without a word.
        """
        deadline = time.monotonic() + self._client.timeout_s
        while True:
            row = self._row(self._look() if _TASK_ID.fullmatch(task_id) else (), task_id)
            if row.state is not TaskState.COMPLETING:
                return row
            if time.monotonic() >= deadline:
                raise SchedulerUnavailable(f"task {task_id} is still ending")
            time.sleep(_POLL_S)

    def _row(self, rows: Sequence[Row], task_id: str) -> Row:
        for row in rows:
            if row.id == task_id and row.index is not None and self._view.is_ours(row):
                return row
        raise SchedulerError(
            f"Slurm lists no task {task_id!r} of this user's services; a task id is "
            "ARRAY_INDEX, such as 44_3, and Slurm forgets ended ones after MinJobAge"
        )

    def _unless_overtaken(self, task_id: str, *argv: str) -> None:
        done = self._client.order(*argv)
        if done.code != 0 and not any(words in done.words for words in _NOT_PENDING):
            raise refusal(done, f"task {task_id} was not released")

    def _scancel(
        self, ids: Sequence[str], *options: str, refused: str = "were not cancelled"
    ) -> None:
        for start in range(0, len(ids), _SCANCEL_AT_ONCE):
            some = ids[start : start + _SCANCEL_AT_ONCE]
            done = self._client.order("scancel", *options, *some)
            left = [
                line
                for line in done.words.lower().split("; ")
                if done.code != 0 and not any(words in line for words in _IS_OVER)
            ]
            if left:
                raise refusal(done, f"tasks {', '.join(some)} {refused}")

    def _cancel_seconds(self, rows: Sequence[Row], wanted: Sequence[str]) -> None:
        names = {job_name(i.tag): array for array in wanted if (i := self._view.intent(array))}
        seconds = {
            row.array
            for row in rows
            if row.array != names.get(row.name, row.array) and not row.state.ended
        }
        for array in sorted(seconds):
            _log.warning("cancelling a second array of the same tag", array=array)
            try:
                self._scancel([array])
            except (SchedulerError, SchedulerUnavailable) as fault:
                # The next look tries again; what was seen is right all the same.
                _log.warning("could not cancel it", array=array, why=str(fault))

    def _constraint(self, hosts: int) -> str:
        if hosts == 1 or "[" in self._options.constraint:
            return self._options.constraint
        among = set(self._partition().split(","))
        nodes = [info for info in self._nodes.infos() if info.partitions & among]
        return slice_constraint(hosts, nodes, self._islands(), self._options)

    def _partition(self) -> str:
        return self._options.partition or parse_default_partition(
            self._client.look("scontrol", "--oneliner", "show", "partition")
        )

    def _avoided(self, spec: ArraySpec) -> tuple[str, ...]:
        names, why = self._avoidance.possible(
            spec.avoid, self._partition(), spec.hosts_per_task, len(spec.indices)
        )
        if why:
            _log.warning("nodes are not excluded", array=spec.tag, nodes=spec.avoid, why=why)
        return names

    def _islands(self) -> tuple[frozenset[str], ...]:
        """Groups of nodes that no job spans; none without a tree topology."""
        done = self._client.order("scontrol", "show", "topology")
        switches = parse_switches(done.out) if done.code == 0 else {}
        return islands([frozenset(self._nodes.expand(nodes)) for nodes in switches.values()])


def _is_loopback(address: str) -> bool:
    return address.startswith("127.")
