# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Powering nodes down, where the cluster does such things and this user may ask for it."""

from collections.abc import Sequence

from pathways_slurm.scheduler.slurm_command import SlurmClient
from pathways_slurm.scheduler.slurm_parse import parse_setting

# Takes no new job and waits for the end of one that has started there meanwhile, which is not
# ours. Slurm has this word since 21.08.
_STATE = "power_down_asap"


def power_down(client: SlurmClient, nodes: Sequence[str]) -> str:
    """Has Slurm power nodes down; it boots them, or makes them anew, for the next job on them.

    Returns:
        Why it will not, for people; "" if it will.

    Raises:
        SchedulerUnavailable: Slurm gave no answer.
    """
    # Without it a node would be marked as one that powers down, and stay so.
    if not parse_setting(client.look("scontrol", "show", "config"), "SuspendProgram"):
        return "this cluster does not power nodes down (it has no SuspendProgram)"
    done = client.order("scontrol", "update", f"nodename={','.join(nodes)}", f"state={_STATE}")
    return "" if done.code == 0 else f"Slurm says {done.words!r}"
