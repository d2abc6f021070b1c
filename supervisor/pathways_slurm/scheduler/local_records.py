# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What the local scheduler keeps of an array, and what follows from it. Pure.

Of each task there is an *intent*, written by whoever gives orders, and the *state* of its last
run, written by the task's runner. A task is pending while the intent asks for a run that has not
begun. Together with the fact whether a runner lives they determine what the task is (see
``local_view``); nothing else is stored.

Every runner imports this module, so it imports little.
"""

from typing import Any, NamedTuple, Self

from pathways_slurm.states import TaskState


class HostNode(NamedTuple):
    """One node of a slice, as in ``scheduler.base.Node``."""

    name: str
    address: str


class Spec(NamedTuple):
    """An array as submitted; never changes.

    ``env`` is complete but for what each host adds; ``nodes`` has those of each slice, in the
    order of ``indices``.
    """

    tag: str
    indices: tuple[int, ...]
    nodes: tuple[tuple[HostNode, ...], ...]
    argv: tuple[str, ...]
    env: dict[str, str]
    first_incarnation: int
    log_dir: str
    kill_wait_s: float

    def to_json(self) -> dict[str, Any]:
        return self._asdict()

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """Raises KeyError, TypeError or ValueError if ``fields`` are not those of a Spec."""
        nodes = tuple(tuple(HostNode(*node) for node in nodes) for nodes in fields["nodes"])
        indices, argv = tuple(fields["indices"]), tuple(fields["argv"])
        return cls(**{**fields, "indices": indices, "argv": argv, "nodes": nodes})

    def nodes_of(self, index: int) -> tuple[HostNode, ...]:
        """The nodes of a slice, in node order."""
        return self.nodes[self.indices.index(index)]

    def host_env(self, index: int, host: int, restarts: int) -> dict[str, str]:
        """The whole environment of one host's process. See ``ArraySpec``."""
        nodes = self.nodes_of(index)
        return self.env | {
            "PATHWAYS_SLICE_INDEX": str(index),
            "PATHWAYS_HOST_INDEX": str(host),
            "PATHWAYS_NODE_NAMES": ",".join(node.name for node in nodes),
            "PATHWAYS_NODE_ADDRESSES": ",".join(node.address for node in nodes),
            "PATHWAYS_INCARNATION": str(self.first_incarnation + restarts),
        }


class Intent(NamedTuple):
    """What was ordered of a task: the run with ``restarts``, not before ``begin_at``.

    Times are Unix times in seconds; ``since`` is that of the order.
    """

    restarts: int
    since: float
    begin_at: float = 0.0
    cancelled: bool = False


class RunState(NamedTuple):
    """A task's last run, as its runner wrote it: RUNNING, COMPLETING or an end."""

    state: TaskState
    restarts: int
    since: float
    reason: str = ""
    exit_code: int | None = None
    signal: int | None = None
    pids: tuple[int, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return self._asdict()

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """Raises KeyError, TypeError or ValueError if ``fields`` are not those of a RunState."""
        return cls(**{**fields, "state": TaskState(fields["state"]), "pids": tuple(fields["pids"])})


class Record(NamedTuple):
    """All there is to know of a task at one moment."""

    intent: Intent
    run: RunState | None
    runner_lives: bool

    @property
    def waits(self) -> bool:
        """A run is ordered that has not begun, and is not to be called off."""
        return not self.intent.cancelled and (
            self.run is None or self.intent.restarts > self.run.restarts
        )

    @property
    def lost(self) -> bool:
        """The last run has no end on record and nobody left to write it."""
        return self.run is not None and not self.run.state.ended and not self.runner_lives
