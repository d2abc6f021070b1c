# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What a user can ask of a service: written by its supervisor, read by ``status``."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pathways_slurm.causes import Cause
from pathways_slurm.decide import newest_tasks
from pathways_slurm.files import write_atomic
from pathways_slurm.model import (
    Component,
    ComponentMemory,
    ComponentView,
    Memory,
    Observation,
    Rules,
)
from pathways_slurm.paths import ServicePaths
from pathways_slurm.probe import Endpoint
from pathways_slurm.scheduler.base import Task
from pathways_slurm.service_lock import lock_holder
from pathways_slurm.states import ServicePhase

_ENDED = (ServicePhase.STOPPED, ServicePhase.FAILED)


def describe(
    rules: Rules,
    memory: Memory,
    seen: Observation,
    endpoints: Mapping[Component, Endpoint],
    now: float,
) -> dict[str, Any]:
    """The status of a service at ``now`` (Unix seconds) as a JSON object. Pure."""
    tasks = newest_tasks(seen.tasks or ())
    return {
        "service": memory.phase.value,
        "reason": memory.reason,
        "since": memory.since,
        "run_id": memory.run_id,
        "min_slices": rules.min_slices,
        "max_slices": rules.max_slices,
        "cluster_env_published": seen.published,
        **{
            c.value: _component(seen.components[c], memory.component(c), endpoints.get(c))
            for c in Component
        },
        "slices": [
            _slice(index, memory, tasks.get(index))
            | {"budgets": _budgets(rules, memory, index, now)}
            for index in range(rules.max_slices)
        ],
    }


def _component(
    view: ComponentView, kept: ComponentMemory, endpoint: Endpoint | None
) -> dict[str, Any]:
    silent = "UNREACHABLE" if kept.answered else "STARTING"
    return {
        "state": "UP" if view.answers else silent if view.alive else "DOWN",
        "address": f"{endpoint[0]}:{endpoint[1]}" if endpoint else None,
        "pid": view.pid if view.alive else None,
        "reason": view.ended,
    }


def _slice(index: int, memory: Memory, task: Task | None) -> dict[str, Any]:
    kept = memory.slice(index)
    nodes = task.nodes if task else ()
    pids = task.pids if task and task.pids else (None,) * len(nodes)
    return {
        "index": index,
        "state": kept.state.value,
        "since": kept.since,
        "reason": kept.reason,
        "incarnation": kept.incarnation,
        "task": task.id if task else None,
        "nodes": [node.name for node in nodes],
        "hosts": [
            {"node": node.name, "address": node.address, "pid": pid}
            for node, pid in zip(nodes, pids, strict=False)
        ],
    }


def _budgets(rules: Rules, memory: Memory, index: int, now: float) -> dict[str, Any]:
    """The slice's restart budgets that something was spent of, by cause."""
    spent = memory.slice(index).spent
    return {
        cause.value: {
            "left": budget.left(spent[cause], now),
            "limit": budget.limit,
            "window_s": budget.window_s,
        }
        for cause in Cause
        if cause in spent and (budget := rules.budget(cause)).recent(spent[cause], now)
    }


class StatusFile:
    """Writes the status when it has changed, signed with this process's pid."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last = ""

    def write(self, status: Mapping[str, Any]) -> None:
        """Raises OSError when the disk does not take it; the next change tries again."""
        text = json.dumps({**status, "supervisor_pid": os.getpid()}, indent=1) + "\n"
        if text != self._last:
            write_atomic(self._path, text)
            self._last = text


def read_status(paths: ServicePaths) -> dict[str, Any]:
    """The service's status as it is now, also when no supervisor runs.

    ``supervisor_pid`` is that of the supervisor that runs now, or None.

    Raises:
        OSError, ValueError: The file can't be read, or is not a status.
    """
    # First, because a supervisor that ends writes its last word before it lets go.
    holder = lock_holder(paths.lock)
    pid = None if holder is None else holder.pid
    try:
        status: dict[str, Any] = json.loads(paths.status.read_text())
        if not {"service", "reason", "slices", "supervisor_pid"} <= set(status):
            raise ValueError("it is no status of this version")
    except (FileNotFoundError, NotADirectoryError):
        status = {
            "service": ServicePhase.STOPPED.value,
            "reason": f"no service was ever started in {paths.directory}",
            "slices": [],
            "supervisor_pid": None,
        }
    said = f"the last word was {status['service']}: {status['reason']}"
    if pid is not None and pid != status["supervisor_pid"]:
        status["service"] = ServicePhase.UNKNOWN.value
        status["reason"] = f"a supervisor ({holder}) has just started; {said}"
    elif pid is None and status["service"] not in {phase.value for phase in _ENDED}:
        status["service"] = ServicePhase.UNKNOWN.value
        status["reason"] = f"no supervisor runs; {said}"
    status["supervisor_pid"] = pid
    return status
