# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The runner of one task of a local array: a process that lives as long as the task does.

``python -m pathways_slurm.scheduler.local_task ARRAY_DIRECTORY INDEX LOCK_DESCRIPTOR`` is started
detached by the local scheduler, which hands over the task's run lock. It runs the task as often as
the intent on disk asks for and ends with the task. Signals: SIGUSR1 "look at the intent",
SIGTERM or SIGINT "cancel the task".
"""

import os
import select
import signal
import sys
import time
from enum import Enum, auto
from pathlib import Path

from pathways_slurm import processes
from pathways_slurm.files import make_private_dir
from pathways_slurm.keeper import Command, Exit, Keeper, SignalInbox
from pathways_slurm.scheduler.local_records import Intent, Record, RunState, Spec
from pathways_slurm.scheduler.local_store import ArrayStore, RunnerSlot
from pathways_slurm.states import TaskState

# A runner waits for the array's lock as long as it takes: it has nothing else to do.
_PATIENCE_S = 3600.0


class Step(Enum):
    """What a runner does next."""

    RUN = auto()
    WAIT = auto()
    LEAVE = auto()


def next_step(record: Record, now: float) -> Step:
    """Pure: from what is on disk while no run is under way."""
    if not record.waits:
        return Step.LEAVE
    return Step.WAIT if record.intent.begin_at > now else Step.RUN


def ended(restarts: int, keeper: Keeper, intent: Intent, now: float) -> RunState:
    """Pure: the last word on a run whose processes have all ended."""
    cause = keeper.exits[0] if keeper.exits else None
    if intent.cancelled:
        state, reason = TaskState.CANCELLED, "cancelled"
    elif intent.restarts > restarts:
        state, reason = TaskState.CANCELLED, "requeued"
    elif keeper.error or cause is None:
        state, reason = TaskState.FAILED, keeper.error
    elif all(exit_.code == 0 for exit_ in keeper.exits):
        state, reason = TaskState.COMPLETED, ""
    else:
        state, reason = TaskState.FAILED, _reason(cause)
    return RunState(
        state,
        restarts,
        now,
        reason,
        exit_code=None if cause is None else cause.code,
        signal=None if cause is None else cause.signal,
    )


def _reason(cause: Exit) -> str:
    return f"host {cause.position} {cause}"


class TaskRunner:
    """Runs one task until nothing more is ordered of it."""

    def __init__(self, store: ArrayStore, index: int, slot: RunnerSlot) -> None:
        self._store = store
        self._index = index
        self._slot = slot
        self._inbox = SignalInbox(signal.SIGUSR1, signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
        self._spec: Spec = store.spec()

    def main(self) -> None:
        """Returns once the task has ended and its run lock is free."""
        runner = processes.identify(os.getpid())
        assert runner is not None  # it is this process
        with self._store.locked(_PATIENCE_S):
            # From here on whoever writes the intent can tell us; what was written before, we read.
            self._store.write_runner(self._slot, runner)
        while True:
            with self._store.locked(_PATIENCE_S):
                intent = self._store.intent(self._index)
                record = Record(intent, self._store.run(self._index), runner_lives=True)
                step = next_step(record, time.time())
                if step is Step.LEAVE:
                    # Inside the lock: an order given later finds the slot free.
                    os.close(self._slot.descriptor)
                    return
            if step is Step.RUN:
                self._run(intent.restarts)
            else:
                self._listen([self._inbox], max(0.0, intent.begin_at - time.time()))

    def _run(self, restarts: int) -> None:
        try:
            commands = self._commands(restarts)
        except OSError as fault:
            # An end, not a crash: a run that nobody records would be tried again and again.
            reason = f"could not make its log directory: {fault}"
            self._write(RunState(TaskState.FAILED, restarts, time.time(), reason))
            return
        keeper = Keeper(commands, kill_wait_s=self._spec.kill_wait_s)
        told = False
        while keeper.phase != "ended":
            readable = self._listen([self._inbox, keeper], None)
            if not told and self._called_off(restarts):
                told = True
                keeper.stop()
            if keeper in readable:
                before = keeper.phase
                keeper.advance()
                if keeper.phase not in (before, "ended"):
                    self._write(self._under_way(restarts, keeper))
        intent = self._store.intent(self._index)
        self._write(ended(restarts, keeper, intent, time.time()))

    def _called_off(self, restarts: int) -> bool:
        intent = self._store.intent(self._index)
        return intent.cancelled or intent.restarts > restarts

    def _under_way(self, restarts: int, keeper: Keeper) -> RunState:
        if keeper.phase == "running":
            return RunState(TaskState.RUNNING, restarts, time.time(), pids=keeper.pids)
        reason = _reason(keeper.exits[0]) if keeper.exits else keeper.error
        return RunState(TaskState.COMPLETING, restarts, time.time(), reason, pids=keeper.pids)

    def _write(self, run: RunState) -> None:
        hosts = f", processes {' '.join(map(str, run.pids))}" if run.pids else ""
        reason = f": {run.reason}" if run.reason else ""
        self._store.log(f"task {self._index}, restarts {run.restarts}: {run.state}{reason}{hosts}")
        # After the log, so that who sees the state finds the reason there.
        self._store.write_run(self._index, run)

    def _listen(
        self, sources: list[SignalInbox | Keeper], timeout_s: float | None
    ) -> list[SignalInbox | Keeper]:
        """Waits for one of ``sources``, and returns those that have something to read."""
        readable, _, _ = select.select(sources, [], [], timeout_s)
        received = self._inbox.take()
        if received & {signal.SIGTERM, signal.SIGINT}:
            self._cancel(signal.Signals(max(received & {signal.SIGTERM, signal.SIGINT})).name)
        return readable

    def _cancel(self, why: str) -> None:
        self._store.log(f"task {self._index}: cancelled by {why} to its runner")
        with self._store.locked(_PATIENCE_S):
            intent = self._store.intent(self._index)
            self._store.write_intent(
                self._index, intent._replace(cancelled=True, since=time.time())
            )

    def _commands(self, restarts: int) -> list[Command]:
        spec = self._spec
        logs = Path(spec.log_dir) / f"slice-{self._index}"
        make_private_dir(logs)
        incarnation = spec.first_incarnation + restarts
        started = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        return [
            Command(
                spec.argv,
                spec.host_env(self._index, host, restarts),
                logs / f"host-{host}.log",
                f"=== slice {self._index} host {host} incarnation {incarnation} {started} ===",
            )
            for host in range(len(spec.nodes_of(self._index)))
        ]


def main() -> None:
    """The process's entry point."""
    directory, index, descriptor = sys.argv[1:]
    slot = RunnerSlot(int(descriptor))
    # It had to survive the start of this program; nothing that we start may hold it.
    os.set_inheritable(slot.descriptor, False)
    os.umask(0o077)
    os.chdir("/")
    processes.become_subreaper()
    TaskRunner(ArrayStore(Path(directory)), int(index), slot).main()


if __name__ == "__main__":
    main()
