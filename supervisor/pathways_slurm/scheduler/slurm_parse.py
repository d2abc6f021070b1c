# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What Slurm's commands print, read the same on every version from 22.05 to 26.05. Pure."""

import calendar
import re
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass

from pathways_slurm.scheduler.base import BEGIN_TIME, Node, Task
from pathways_slurm.scheduler.slurm_ends import HostEnd
from pathways_slurm.states import TaskState, task_state

# Name and comment last: they may hold the separator. Size 0 means whole values.
_FIELDS = (
    "JobArrayID",
    "ArrayJobID",
    "ArrayTaskID",
    "State",
    "Reason",
    "RestartCnt",
    "exit_code",
    "SubmitTime",
    "StartTime",
    "EndTime",
    "PreemptTime",
    "NodeList",
    "Comment",
    "Name",
)
SQUEUE = (
    "squeue",
    "--noheader",
    "--array",
    "--states=all",
    "--me",
    "--Format=" + ",".join(f"{name}:0|" for name in _FIELDS),
)

_ROW = re.compile(r"\d[^|]*\|(?:\d+|N/A|)\|(?:\d+|N/A|)\|[A-Z_]+\|")
_NO_VALUE = frozenset({"", "N/A", "NONE", "None", "(null)", "Unknown", "n/a"})

# Reasons that the last run left behind: a requeued task shows them for a second or so.
_OF_AN_END = frozenset(
    {"NonZeroExitCode", "JobLaunchFailure", "NodeDown", "TimeLimit", "SystemFailure", "OutOfMemory"}
)
_HELD = re.compile(r"jobheld|requeued[ _]held|in[ _]held[ _]state", re.IGNORECASE)
# srun's own convention for a task that a signal ended.
_SIGNAL_BASE = 128

_COMMENT = re.compile(r"pathways tag=(\S+) first=([1-9][0-9]{0,8})")


@dataclass(frozen=True, slots=True)
class Row:
    """One job of squeue's answer. Times are Unix seconds, 0 where Slurm has none.

    Attributes:
        id: ``ARRAY_INDEX``, or a plain job id.
        array: Id of its array.
        index: Of the array task; None for a plain job.
        exit_status: As Slurm writes it.
        nodes: Slurm's expression for the list, "" while there are none.
    """

    id: str
    array: str
    index: int | None
    state: TaskState
    reason: str
    restarts: int
    exit_status: str
    submitted: float
    started: float
    ended: float
    preempted: float
    nodes: str
    comment: str
    name: str

    @property
    def may_begin(self) -> float:
        """When a requeued task can start at the earliest without being killed.

        Slurm's nodes turn down a job's credential of the second in which its last run was ended
        ("Job credential revoked"), or of an earlier one; a requeue happens in that second or later.
        """
        return self.submitted + 1.0

    @property
    def waits_to_begin(self) -> bool:
        """Pending for nothing but a time."""
        return self.state is TaskState.PENDING and self.reason == BEGIN_TIME


def parse_rows(text: str) -> tuple[Row, ...]:
    """Reads squeue's answer to ``SQUEUE``.

    Raises:
        ValueError: It is not such an answer; then nothing of it is to be believed.
    """
    records: list[str] = []
    for line in text.splitlines():
        whole = not records or _is_whole(records[-1])
        if whole and not _ROW.match(line):
            raise ValueError(f"squeue printed {line!r}, which is no job")
        if whole:
            records.append(line)
        else:
            # A job's name or comment may hold a line break.
            records[-1] += "\n" + line
    return tuple(_row(record) for record in records)


def _is_whole(record: str) -> bool:
    return record.count("|") >= len(_FIELDS) and record.endswith("|")


def _row(record: str) -> Row:
    fields = record.split("|", len(_FIELDS) - 2)
    if not _is_whole(record):
        raise ValueError(f"squeue printed {record!r}, which has not all of its fields")
    comment, _, name = fields[-1][:-1].rpartition("|")
    id_, array, index, word, reason, restarts, status, *times, nodes = fields[:-1]
    submitted, started, ended, preempted = map(parse_time, times)
    state = task_state(word)
    # A cancelled task's reason is still what it waited for.
    reason = "" if reason in _NO_VALUE or state is TaskState.CANCELLED else reason
    if state is TaskState.PENDING and _HELD.search(reason):
        state = TaskState.HELD
    elif state is TaskState.PENDING and (
        reason in _OF_AN_END or (not reason and started > submitted)
    ):
        # Slurm's scheduler has not looked at it since it was requeued.
        reason = BEGIN_TIME
    return Row(
        id=id_,
        array=id_.partition("_")[0] if array in _NO_VALUE else array,
        index=None if index in _NO_VALUE else int(index),
        state=state,
        reason=reason,
        restarts=int(restarts),
        exit_status=status,
        submitted=submitted,
        started=started,
        ended=ended,
        preempted=preempted,
        nodes="" if nodes in _NO_VALUE else nodes,
        comment="" if comment in _NO_VALUE else comment,
        name=name,
    )


def parse_time(text: str) -> float:
    """Unix time of Slurm's, printed in UTC; 0 where it has none.

    Raises:
        ValueError: It is no time.
    """
    if text in _NO_VALUE:
        return 0.0
    return float(calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%S")))


def format_time(seconds: float) -> str:
    """A time as Slurm reads it where times are in UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def parse_exit(text: str) -> tuple[int | None, int | None]:
    """Exit code and signal of an ended run, one of them None.

    22.05 prints the raw wait status (768), later versions ``3:0``. A batch script that became
    srun says with 128 + N that signal N ended a host.
    """
    if text in _NO_VALUE:
        return None, None
    if ":" in text:
        code, number = (int(part) for part in text.split(":")[:2])
    else:
        status = int(text)
        code, number = status >> 8, status & 0x7F
    if number:
        return None, number
    if _SIGNAL_BASE < code < _SIGNAL_BASE + signal.NSIG:
        return None, code - _SIGNAL_BASE
    return code, None


def task_of(
    row: Row,
    index: int,
    nodes: tuple[Node, ...],
    first_incarnation: int,
    end: HostEnd | None = None,
    ended_for: str = "",
) -> Task:
    """The task that a row tells of.

    Args:
        row: Of squeue.
        index: Of the slice.
        nodes: Of the row.
        first_incarnation: Of the array.
        end: How the last run ended, where more is known of that than the row says.
        ended_for: Why Slurm itself ended it, for people.
    """
    code, number = parse_exit(row.exit_status) if row.state.ended else (None, None)
    if end is not None:
        code, number = end.code, end.signal
    pending = row.state in (TaskState.PENDING, TaskState.HELD)
    return Task(
        id=row.id,
        index=index,
        state=row.state,
        reason=str(end) if end is not None else _reason(row, code, number),
        restarts=row.restarts,
        incarnation=first_incarnation + row.restarts,
        exit_code=code,
        signal=number,
        nodes=() if pending else nodes,
        since=_since(row),
        preempted=_preempted(row),
        ended_for=ended_for,
    )


def _reason(row: Row, code: int | None, number: int | None) -> str:
    if row.state is not TaskState.FAILED or row.reason not in ("", "NonZeroExitCode"):
        return row.reason
    if number is not None:
        return f"a host was ended by signal {number}"
    return f"a host exited with code {code}"


def _since(row: Row) -> float:
    if row.state in (TaskState.PENDING, TaskState.HELD):
        return row.submitted  # a requeue counts as a submission
    if row.state.ended or row.state is TaskState.COMPLETING:
        return row.ended or row.started
    return row.started


def _preempted(row: Row) -> bool:
    """Slurm may keep the time of an earlier run's preemption; only the last run's counts."""
    if not row.preempted or row.state in (TaskState.RUNNING, TaskState.CONFIGURING):
        return False
    if row.state in (TaskState.PENDING, TaskState.HELD):
        # The time it started is gone; a requeue by Slurm follows at the end of its grace time.
        return True
    return row.preempted >= row.started


def format_comment(tag: str, first_incarnation: int) -> str:
    """What a job says of itself to a supervisor that has lost its own notes."""
    return f"pathways tag={tag} first={first_incarnation}"


def parse_comment(comment: str) -> tuple[str, int] | None:
    """Tag and first incarnation, or None if ``comment`` is not ours (any more)."""
    match = _COMMENT.search(comment)
    return None if match is None else (match[1], int(match[2]))


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A node as Slurm has it.

    Attributes:
        name: Of the node.
        address: May be a name.
        features: That it has.
        partitions: That it is in.
        state: Slurm's words for it, such as IDLE and POWERED_DOWN.
    """

    name: str
    address: str
    features: frozenset[str] = frozenset()
    partitions: frozenset[str] = frozenset()
    state: frozenset[str] = frozenset()


def parse_nodes(text: str) -> tuple[NodeInfo, ...]:
    """Reads ``scontrol --oneliner show node``."""
    found = []
    for line in text.splitlines():
        # A node's OS and reason hold spaces; the words that matter hold none.
        words = _key_values(line)
        if name := words.get("NodeName"):
            features = words.get("AvailableFeatures", "")
            found.append(
                NodeInfo(
                    name=name,
                    address=words.get("NodeAddr", name),
                    features=_words(features),
                    partitions=_words(words.get("Partitions", "")),
                    state=_states(words.get("State", "")),
                )
            )
    return tuple(found)


def parse_job(text: str) -> dict[str, str]:
    """The fields of ``scontrol --oneliner show job`` of one task."""
    return _key_values(text)


def parse_default_partition(text: str) -> str:
    """The default partition in ``scontrol --oneliner show partition``; "" if there is none."""
    for line in text.splitlines():
        words = line.split()
        if "Default=YES" in words and words[0].startswith("PartitionName="):
            return words[0].partition("=")[2]
    return ""


def parse_setting(text: str, name: str) -> str:
    """The value of a setting in ``scontrol show config``; "" if it has none."""
    for line in text.splitlines():
        key, _, value = line.partition("=")
        if key.strip() == name:
            return "" if value.strip() in _NO_VALUE else value.strip()
    return ""


def parse_switches(text: str) -> dict[str, str]:
    """Switch → expression for the nodes below it, from ``scontrol show topology``."""
    found = {}
    for line in text.splitlines():
        words = _key_values(line)
        if "SwitchName" in words and words.get("Nodes", "") not in _NO_VALUE:
            found[words["SwitchName"]] = words["Nodes"]
    return found


def _key_values(line: str) -> dict[str, str]:
    pairs = [word.split("=", 1) for word in line.split() if "=" in word]
    # The first of a name counts: free text, such as a node's reason, comes last.
    return dict(reversed(pairs))


def _states(text: str) -> frozenset[str]:
    # Some versions write a mark behind the first word in place of NOT_RESPONDING.
    silent = {"NOT_RESPONDING"} if "*" in text else set()
    return frozenset(re.findall(r"[A-Z_]+", text)) | silent


def _words(text: str) -> frozenset[str]:
    return frozenset() if text in _NO_VALUE else frozenset(text.split(","))


def islands(switches: Sequence[frozenset[str]]) -> tuple[frozenset[str], ...]:
    """The groups of nodes that no job spans: those of switches below no other."""
    return tuple(dict.fromkeys(s for s in switches if not any(s < other for other in switches)))
