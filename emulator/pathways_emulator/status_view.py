# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""`pathways-emulator status`: the resource manager's answer as text. Pure."""

from collections.abc import Sequence

from pathways_emulator import membership_pb2 as pb

_TITLES = ("SLICE", "ALIVE", "INCARNATION", "NOTICE", "HOSTS (PID, SILENT FOR)", "REASON")


def render(status: pb.StatusResponse) -> str:
    """A line about the instance, and a table with a line per slice."""
    snapshot = status.snapshot
    facts = [f"up for {status.uptime_s:.0f} s"]
    if not snapshot.settled:
        facts.append("not settled: slices may be alive and not back yet")
    if status.shutting_down:
        facts.append("shutting down")
    head = f"{len(snapshot.slices)} slices of {snapshot.instance_type}, {', '.join(facts)}"
    rows = [_row(member, status.hosts) for member in snapshot.slices]
    return "\n".join([head, *_table([_TITLES, *rows])])


def _row(member: pb.SliceMember, hosts: Sequence[pb.HostStatus]) -> tuple[str, ...]:
    notice = "-"
    if member.HasField("notice"):
        notice = f"{member.notice.left_s:.0f} s left ({member.notice.reason})"
    joined = [
        f"{host.host_index} ({host.pid}, {host.silent_s:.1f} s)"
        for host in hosts
        if host.slice_index == member.index
    ]
    abandoned = f"abandoned: {member.abandoned}" if member.abandoned else ""
    reasons = [text for text in (member.reason, abandoned) if text]
    return (
        str(member.index),
        "yes" if member.alive else "no",
        str(member.incarnation or "-"),
        notice,
        ", ".join(joined) or "-",
        "; ".join(reasons) or "-",
    )


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
