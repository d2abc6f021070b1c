# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""How far slices are that were asked to give their nodes back, by a service's status. Pure."""

from collections.abc import Mapping
from typing import Any

from pathways_slurm.cli import duration
from pathways_slurm.states import SliceState

# Has no nodes, and gets none while the request is there.
_DOWN = (SliceState.MAINTENANCE, SliceState.FAILED, SliceState.CANCELLED, SliceState.ENDED)
# As a status has it that says nothing of the slice.
_UNKNOWN = {
    "state": SliceState.UNKNOWN.value,
    "nodes": (),
    "reason": "the status has no word of it",
}
# Has none now, but an order to start it may have been under way when the request was made: longer
# than a supervisor takes from one look to the next but one.
_SETTLE_S = 15.0


class Watch:
    """What was seen of the slices so far.

    Attributes:
        nodes: Of each slice, the last that it had; empty where it had none.
        left: The slices that are not known to be down, as the status has them.
    """

    def __init__(self, deadlines: Mapping[int, float]) -> None:
        """``deadlines``: Unix times by slice index, of the slices that are watched."""
        self.nodes: dict[int, tuple[str, ...]] = dict.fromkeys(deadlines, ())
        self.left: tuple[dict[str, Any], ...] = ()
        self._deadlines = deadlines
        self._down: dict[int, dict[str, Any]] = {}
        self._pending_since: dict[int, float] = {}

    def take(self, status: Mapping[str, Any], now: float) -> None:
        """Takes a status of Unix time ``now``; a slice that is down stays so for this watch."""
        items = {item["index"]: item for item in status["slices"] if item["index"] in self.nodes}
        for index, item in items.items():
            if item["nodes"]:
                self.nodes[index] = tuple(item["nodes"])
            if self._is_down(item, now):
                self._down.setdefault(index, item)
        self.left = tuple(
            items.get(index, {"index": index, **_UNKNOWN})
            for index in sorted(self.nodes.keys() - self._down.keys())
        )

    def _is_down(self, item: Mapping[str, Any], now: float) -> bool:
        if item["state"] != SliceState.PENDING:
            self._pending_since.pop(item["index"], None)
            return item["state"] in _DOWN
        return now - self._pending_since.setdefault(item["index"], now) >= _SETTLE_S

    def progress(self, now: float) -> list[str]:
        """A line for each slice that is left: who is there, and for how long it may stay."""
        lines = []
        for item in self.left:
            left_s = self._deadlines[item["index"]] - now
            limit = f"{duration.words(left_s)} left" if left_s > 0 else "time is up"
            on = f" on {', '.join(item['nodes'])}" if item["nodes"] else ""
            lines.append(f"slice {item['index']} {item['state']}{on}, {limit}: {item['reason']}")
        return lines

    def summary(self) -> list[str]:
        """A line for each slice that is down, with its nodes."""
        lines = []
        for index, item in sorted(self._down.items()):
            words = f"slice {index} is down"
            if item["state"] != SliceState.MAINTENANCE:
                words += f" ({item['state']}: {item['reason']})"
            nodes = ", ".join(self.nodes[index])
            lines.append(
                f"{words}; {f'its nodes are free: {nodes}' if nodes else 'it has no nodes'}"
            )
        return lines
