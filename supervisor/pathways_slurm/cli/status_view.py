# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""A service's status for people."""

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

_COMPONENTS = (("rm", "resource manager"), ("proxy", "IFRT proxy"))


def view(status: dict[str, Any], events: Sequence[str], now: float) -> RenderableType:
    """The status as :func:`~pathways_slurm.status.describe` makes it, and lines below it.

    Args:
        status: Of the service.
        events: The last ones, a line each.
        now: Unix time in seconds.
    """
    parts: list[RenderableType] = [
        f"service  [bold]{status['service']}[/bold]  {escape(status['reason'])}"
    ]
    for component, title in _COMPONENTS:
        if component in status:
            part = status[component]
            parts.append(f"{title}  {part['state']}  {part['address']}  {escape(part['reason'])}")
    if status["slices"]:
        parts.append(_slices(status["slices"], now))
    if events:
        parts += ["", "last events", *(f"  {escape(line)}" for line in events)]
    return Group(*parts)


def _slices(slices: Sequence[dict[str, Any]], now: float) -> Table:
    columns = ["slice", "state", "for", "incarnation", "nodes"]
    # A column of its own for what few services ever touch would be a waste of width.
    touched = any(item.get("budgets") for item in slices)
    table = Table(
        *columns, *(["restarts left"] if touched else []), "reason", box=None, pad_edge=False
    )
    for item in slices:
        table.add_row(
            str(item["index"]),
            item["state"],
            age(item["since"], now),
            str(item["incarnation"] or "-"),
            escape(", ".join(item["nodes"]) or "-"),
            *([_restarts_left(item)] if touched else []),
            escape(item["reason"]),
        )
    return table


def _restarts_left(item: dict[str, Any]) -> str:
    budgets = item.get("budgets") or {}
    left = (f"{cause} {b['left']} of {b['limit']}" for cause, b in budgets.items())
    return escape(", ".join(left) or "-")


def age(since: float, now: float) -> str:
    """How long ago a Unix time was, such as ``3m07s``; ``-`` for 0."""
    if not since:
        return "-"
    minutes, seconds = divmod(max(0, int(now - since)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{seconds:02}s"
