# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Whether Slurm leaves this job the time that an autocheckpoint may take."""

import re
import subprocess
from collections.abc import Mapping

_TIMEOUT_S = 5.0

_KILL_WAIT = re.compile(r"^KillWait\s*=\s*(\d+)\s*sec", re.MULTILINE)
_GRACE_TIME = re.compile(r"\bGraceTime=(\d+)\b")


def shortfall(timeout_s: float, config: str, partition: str, name: str) -> str | None:
    """What is wrong with Slurm's times, and what to do; None if nothing, or if it is not known.

    From the signal to the kill a preempted job has GraceTime and KillWait, one that is cancelled or
    out of time KillWait.

    Args:
        timeout_s: What an autocheckpoint may take.
        config: What ``scontrol show config`` prints.
        partition: What ``scontrol show partition`` prints of the job's partition.
        name: Of the partition.
    """
    kill, grace = _KILL_WAIT.search(config), _GRACE_TIME.search(partition)
    if kill is None or grace is None:
        return None
    kill_wait_s, grace_time_s = int(kill[1]), int(grace[1])
    if max(kill_wait_s, grace_time_s) >= timeout_s:
        return None
    return (
        f"it may take {timeout_s:g} s, and Slurm kills this job sooner: {kill_wait_s} s after the "
        f"signal when it is cancelled (KillWait), {grace_time_s + kill_wait_s} s when it is "
        f"preempted (with GraceTime of partition {name}). Have an administrator set "
        f"GraceTime={timeout_s:.0f} on the partition or KillWait={timeout_s:.0f}, have the signal "
        "come earlier than the time limit (sbatch --signal=TERM@300), or give a smaller "
        "autocheckpoint_timeout_s"
    )


def shortfall_here(timeout_s: float, environ: Mapping[str, str]) -> str | None:
    """:func:`shortfall` of the job that this process is in; None outside of Slurm's jobs."""
    name = environ.get("SLURM_JOB_PARTITION")
    if not environ.get("SLURM_JOB_ID") or not name:
        return None
    config = _shown("config")
    partition = _shown("partition", name)
    return shortfall(timeout_s, config, partition, name)


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
