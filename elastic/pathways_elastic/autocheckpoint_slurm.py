# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Whether Slurm leaves this job the time that an autocheckpoint may take."""

import re
import subprocess
from collections.abc import Mapping

_TIMEOUT_S = 5.0

_KILL_WAIT = re.compile(r"^KillWait\s*=\s*(\d+)\s*sec", re.MULTILINE)
_GRACE_TIME = re.compile(r"\bGraceTime=(\d+)\b")


def shortfall(
    timeout_s: float, config: str, partition: str, name: str, *, in_step: bool
) -> str | None:
    """What is wrong with Slurm's times, and what to do; None if nothing, or if it is not known.

    A job that is preempted has GraceTime, and then KillWait until it is killed. Its steps get
    SIGTERM at the beginning of that, its batch script when GraceTime is over. A job that is
    cancelled or out of time has KillWait.

    Args:
        timeout_s: What an autocheckpoint may take.
        config: What ``scontrol show config`` prints.
        partition: What ``scontrol show partition`` prints of the job's partition.
        name: Of the partition.
        in_step: The program was started by srun, and is not the batch script or a child of it.
    """
    kill, grace = _KILL_WAIT.search(config), _GRACE_TIME.search(partition)
    if kill is None or grace is None:
        return None
    kill_wait_s = int(kill[1])
    step_s = int(grace[1]) + kill_wait_s
    if (step_s if in_step else kill_wait_s) >= timeout_s:
        return None
    wanted = f"{timeout_s:.0f}"
    if in_step:
        left = (
            f"{kill_wait_s} s after the signal when it is cancelled (KillWait), {step_s} s when it "
            f"is preempted (with GraceTime of partition {name}). Have an administrator set "
            f"GraceTime={wanted} on the partition or KillWait={wanted}"
        )
    else:
        more = "" if step_s >= timeout_s else f" and with GraceTime={wanted} on the partition"
        left = (
            f"{kill_wait_s} s after the signal (KillWait), also when it is preempted, as it is in "
            "no step: those get the signal when the grace time begins, and have "
            f"{step_s} s (with GraceTime of partition {name}). Start it with srun in the batch "
            f"script{more}, have an administrator set KillWait={wanted}"
        )
    to = "" if in_step else "B:"
    return (
        f"it may take {timeout_s:g} s, and Slurm kills this job sooner: {left}, have the signal "
        f"come earlier than the time limit (sbatch --signal={to}TERM@{wanted}), or give a smaller "
        "autocheckpoint_timeout_s"
    )


def shortfall_here(timeout_s: float, environ: Mapping[str, str]) -> str | None:
    """:func:`shortfall` of the job that this process is in; None outside of Slurm's jobs."""
    job, name = environ.get("SLURM_JOB_ID"), environ.get("SLURM_JOB_PARTITION")
    if not job or not name:
        return None
    config = _shown("config")
    partition = _shown("partition", name)
    return shortfall(timeout_s, config, partition, name, in_step=_in_step(job, environ))


def _in_step(job: str, environ: Mapping[str, str]) -> bool:
    """Whether srun has started this program, or a parent of it, in this job."""
    # A batch script has no step's number of its own, but sbatch passes on what it has in its
    # environment: in a script that was submitted from within a step, the number is that step's.
    step = environ.get("SLURM_STEP_ID")
    return bool(step) and "StepId=" in _shown("step", f"{job}.{step}")


def _shown(*what: str) -> str:
    """What scontrol shows; nothing if it can't."""
    try:
        done = subprocess.run(
            ["scontrol", "show", *what],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout
