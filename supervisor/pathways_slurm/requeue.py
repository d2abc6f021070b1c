# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Has Slurm run the job that this process is in once more, where Slurm would not by itself.

Slurm requeues what it preempts, but not everywhere: on 22.05 a job that ends within its grace time
stays ended. And a job that gets a signal of its own (``sbatch --signal=B:USR1@120``) shortly before
its time is up ends before Slurm would do anything. What a user has cancelled must stay so.
"""

import signal
import time
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from pathways_slurm.scheduler.base import SchedulerUnavailable
from pathways_slurm.scheduler.slurm_command import SlurmClient
from pathways_slurm.scheduler.slurm_parse import SQUEUE, Row, parse_rows
from pathways_slurm.states import TaskState

# What a batch script is sent before its job has to end.
WARNINGS = frozenset({signal.SIGUSR1, signal.SIGTERM})

_TIMEOUT_S = 5.0
# Below KillWait, 30 s by default: then Slurm kills.
_PATIENCE_S = 20.0
_LOOK_AGAIN_S = 1.0


class Verdict(NamedTuple):
    """Whether the job is to run once more; ``why`` is for people, "" where there is no news."""

    requeue: bool
    why: str = ""


def verdict(row: Row | None, *, failed: bool, warned: bool, budget: int) -> Verdict:
    """What is to be done once the job's command has ended. Pure.

    Args:
        row: Slurm's, of this job; None if Slurm does not list it.
        failed: The command's exit code is not 0.
        warned: A signal of ``WARNINGS`` came while it ran, or while it was waited for.
        budget: How often the job may have been requeued, by whomever.
    """
    # Any other state is Slurm's own decision: cancelled, or requeued already.
    if row is None or row.state is not TaskState.RUNNING:
        return Verdict(False)
    # Preempted in this run: Slurm keeps the time of an earlier one.
    preempted = row.preempted > 0.0 and row.preempted >= row.started
    if not (warned or (preempted and failed)):
        return Verdict(False)
    what = "is preempted" if preempted else "was told that it must end"
    if row.restarts >= budget:
        return Verdict(
            False, f"job {row.id} {what}; it has been requeued {row.restarts} times, the limit"
        )
    return Verdict(True, f"job {row.id} {what}; requeued, {row.restarts + 1} of {budget}")


def own_job(environ: Mapping[str, str]) -> str | None:
    """The Slurm job, or array task, that this process is in; None outside of Slurm."""
    array, index = environ.get("SLURM_ARRAY_JOB_ID"), environ.get("SLURM_ARRAY_TASK_ID")
    if array and index:
        return f"{array}_{index}"
    return environ.get("SLURM_JOB_ID") or None


def requeue_if_due(
    environ: Mapping[str, str],
    *,
    code: int,
    received: Collection[int],
    budget: int,
    say: Callable[[str], None],
) -> bool:
    """Requeues this process's job if ``verdict`` has it so; Slurm then ends this process.

    Args:
        environ: Of this process.
        code: Exit code of the job's command.
        received: Signals that came.
        budget: How often the job may have been requeued.
        say: Is told what was done, or why it could not be.

    Returns:
        Whether the job was requeued.
    """
    job = own_job(environ)
    failed, warned = code != 0, bool(WARNINGS & set(received))
    if job is None or not (failed or warned):
        return False
    client = SlurmClient(_TIMEOUT_S, environ)
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            row = next((row for row in parse_rows(client.look(*SQUEUE)) if row.id == job), None)
            due, why = verdict(row, failed=failed, warned=warned, budget=budget)
            if due:
                # First, as the order ends this process.
                say(why)
                done = client.order("scontrol", "requeue", job)
                if done.code == 0:
                    return True
                say(f"job {job} was not requeued: {done.words}")
            elif why:
                say(why)
            return False
        except (SchedulerUnavailable, ValueError) as error:
            # What has merely failed has most likely not been preempted, and is not worth a wait.
            if not warned:
                return False
            if time.monotonic() >= deadline:
                say(f"job {job} was not requeued: {error}")
                return False
        time.sleep(_LOOK_AGAIN_S)
