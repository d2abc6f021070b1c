# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The demo as a story: what was seen, in order, becomes lines to show, a summary and a verdict.

Nothing here touches a process, a file or a clock. Times are Unix times in seconds.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

SNAPSHOT_PERIOD = 10
"""Steps between snapshots of the training program, and between its checkpoints."""
LAST_STEPS = 5
"""All slices must take part in so many last steps."""
LOSS_FALLS_TO = 0.8
"""The last loss must be at most this part of the first."""


@dataclass(frozen=True)
class Plan:
    """What the demo is to do.

    Attributes:
        slices: Slices in all.
        min_slices: Slices below which the service is not announced.
        steps: Training steps in all.
        victim: Index of the slice that is killed.
    """

    slices: int
    min_slices: int
    steps: int
    victim: int = 1

    @property
    def everyone(self) -> tuple[int, ...]:
        return tuple(range(self.slices))

    @property
    def survivors(self) -> tuple[int, ...]:
        return tuple(i for i in self.everyone if i != self.victim)

    @property
    def kill_at(self) -> int:
        """The step after which the victim is killed.

        About a third of the way, and between two snapshots, so that steps are lost.
        """
        period = SNAPSHOT_PERIOD
        return self.steps // 3 // period * period + period // 2

    def step_time(self, back_within_s: float) -> float:
        """Seconds of a step with which the steps after the kill take ``back_within_s``."""
        return round(back_within_s / (self.steps - self.kill_at), 3)


@dataclass(frozen=True)
class Record:
    """A line of the training program's metrics. Fields that a kind of event lacks are empty."""

    event: str
    time: float
    step: int = 0
    loss: float = 0.0
    slices: tuple[int, ...] = ()
    message: str = ""


def parse_record(line: str) -> Record:
    """Reads one line of metrics.

    Raises:
        ValueError: It is not a JSON object with an event and a time.
    """
    found: Any = json.loads(line)
    if isinstance(found, dict) and {"event", "time"} <= found.keys():
        slices: Iterable[int] = found.get("slices") or found.get("active") or ()
        return Record(
            str(found["event"]),
            float(found["time"]),
            step=int(found.get("step", 0)),
            loss=float(found.get("loss", 0.0)),
            slices=tuple(sorted(slices)),
            message=str(found.get("message", "")),
        )
    raise ValueError(f"not a line of training metrics: {line!r}")


@dataclass(frozen=True)
class Host:
    """One worker process of a slice, by its node's name; ``pid`` is None while it is not known."""

    node: str
    pid: int | None


@dataclass(frozen=True)
class SliceView:
    """What ``pathways-slurm status --json`` says of one slice."""

    state: str
    incarnation: int
    reason: str = ""
    hosts: tuple[Host, ...] = ()
    task: str = ""


@dataclass(frozen=True)
class Victim:
    """The worker that is killed, and the incarnation and the scheduler's task of its slice."""

    node: str
    pid: int
    incarnation: int
    task: str = ""


def slice_in(status: Mapping[str, Any], index: int) -> SliceView | None:
    """The slice ``index`` of a status, or None if it tells of none."""
    for found in status.get("slices", ()):
        if found["index"] == index:
            return SliceView(
                found["state"],
                found["incarnation"] or 0,
                found.get("reason") or "",
                tuple(Host(h["node"], h["pid"]) for h in found.get("hosts", ())),
                found.get("task") or "",
            )
    return None


class Phase(Enum):
    """How far the story has come. In order."""

    STARTING = auto()  # no step on all slices yet
    TRAINING = auto()  # on all slices, before the kill
    KILLED = auto()  # no step since then on the survivors
    REDUCED = auto()  # trains on the survivors
    RESTORED = auto()  # trains on all slices again


@dataclass(frozen=True)
class Check:
    """One line of the verdict."""

    passed: bool
    text: str


@dataclass
class Story:
    """Takes what is seen in the order in which it is seen; each method returns lines to show."""

    plan: Plan
    phase: Phase = Phase.STARTING
    steps: list[Record] = field(default_factory=list)
    killed_at: float | None = None
    killed_incarnation: int = 0
    steps_lost: int | None = None
    resumed_after: float | None = None
    back_after: float | None = None
    full_after: float | None = None

    @property
    def reached(self) -> int:
        """The greatest step that was taken so far."""
        return max((r.step for r in self.steps), default=0)

    @property
    def wants_victim(self) -> bool:
        """The kill is near: time to look up whom to kill."""
        return self.phase is Phase.TRAINING and self.reached >= self.plan.kill_at // 2

    @property
    def wants_kill(self) -> bool:
        """All slices train, and the step has come."""
        return self.phase is Phase.TRAINING and self.reached >= self.plan.kill_at

    @property
    def wants_status(self) -> bool:
        """Whether the victim is back is not known yet."""
        return self.killed_at is not None and self.back_after is None

    def on_kill(self, now: float, victim: Victim) -> list[str]:
        """The worker was killed."""
        self.phase, self.killed_at, self.killed_incarnation = Phase.KILLED, now, victim.incarnation
        return [
            f"slice {self.plan.victim} killed after step {self.reached} "
            f"(kill -9 of pid {victim.pid}, the worker on {victim.node})"
        ]

    def on_slice(self, now: float, seen: SliceView) -> list[str]:
        """The service told of the slice that was killed."""
        if (
            self.killed_at is None
            or self.back_after is not None
            or seen.state != "READY"
            or seen.incarnation <= self.killed_incarnation
        ):
            return []
        self.back_after = now - self.killed_at
        return [
            f"slice {self.plan.victim} is ready again, {self.back_after:.1f} s after the kill "
            f"(run {seen.incarnation})"
        ]

    def on_record(self, record: Record) -> list[str]:
        """The training program told something."""
        match record.event:
            case "step":
                return self._on_step(record)
            case "slices":
                return [f"training on slices {_names(record.slices)}"]
            case "restore":
                return [f"restored the checkpoint of step {record.step}"]
            case "snapshot":
                return [f"goes on from the snapshot of step {record.step}"]
            case "error":
                return [f"training noticed after step {self.reached}: {record.message}"]
            case _:
                return []

    def _on_step(self, record: Record) -> list[str]:
        before = self.reached
        self.steps.append(record)
        lines = []
        if self.phase is Phase.STARTING and record.slices == self.plan.everyone:
            self.phase = Phase.TRAINING
            lines.append(f"first step on all {self.plan.slices} slices")
        elif self.phase is Phase.KILLED and record.slices == self.plan.survivors:
            self.phase = Phase.REDUCED
            self.steps_lost = before - (record.step - 1)
            self.resumed_after = record.time - (self.killed_at or 0.0)
            lines.append(
                f"next step, on slices {_names(record.slices)}, {self.resumed_after:.1f} s after "
                f"the kill ({self.steps_lost} steps lost)"
            )
        elif self.phase is Phase.REDUCED and record.slices == self.plan.everyone:
            self.phase = Phase.RESTORED
            self.full_after = record.time - (self.killed_at or 0.0)
            lines.append(
                f"all {self.plan.slices} slices train again, {self.full_after:.1f} s after the kill"
            )
        every = max(1, self.plan.steps // 10)
        if record.step == 1 or record.step % every == 0 or record.step == self.plan.steps:
            lines.append(
                f"step {record.step:4d}/{self.plan.steps}  loss {record.loss:.3f}  "
                f"slices {_names(record.slices)}"
            )
        return lines

    def checks(self) -> list[Check]:
        """Whether training did what the demo is there to show."""
        plan, last = self.plan, self.steps[-LAST_STEPS:]
        survivors = _names(plan.survivors)
        loss = f"loss {_number(self.loss_first, 3)} → {_number(self.loss_last, 3)}"
        return [
            Check(
                self.resumed_after is not None,
                f"training resumed on slices {survivors}: {_seconds(self.resumed_after)}",
            ),
            Check(
                self.back_after is not None,
                f"slice {plan.victim} came back: {_seconds(self.back_after)}",
            ),
            Check(
                self.full_after is not None,
                f"all {plan.slices} slices trained again: {_seconds(self.full_after)}",
            ),
            Check(
                self.reached == plan.steps
                and len(last) == LAST_STEPS
                and all(r.slices == plan.everyone for r in last),
                f"all slices took part in the last {LAST_STEPS} of {plan.steps} steps",
            ),
            Check(
                self.loss_first is not None
                and self.loss_last is not None
                and self.loss_last <= LOSS_FALLS_TO * self.loss_first,
                f"the loss fell: {loss}",
            ),
        ]

    @property
    def loss_first(self) -> float | None:
        return self.steps[0].loss if self.steps else None

    @property
    def loss_last(self) -> float | None:
        return self.steps[-1].loss if self.steps else None

    def summary(self, ok: bool) -> dict[str, Any]:
        """The object that ``--json`` writes; what did not happen is None."""
        return {
            "slices": self.plan.slices,
            "min_slices": self.plan.min_slices,
            "killed_slice": None if self.killed_at is None else self.plan.victim,
            "steps": self.reached,
            "loss_first": self.loss_first,
            "loss_last": self.loss_last,
            "resumed_after_s": _rounded(self.resumed_after),
            "slice_back_after_s": _rounded(self.back_after),
            "full_mesh_after_s": _rounded(self.full_after),
            "steps_lost": self.steps_lost,
            "ok": ok,
        }


def _names(slices: tuple[int, ...]) -> str:
    return ",".join(map(str, slices))


def _number(value: float | None, digits: int) -> str:
    return "none" if value is None else f"{value:.{digits}f}"


def _seconds(value: float | None) -> str:
    return "did not happen" if value is None else f"{value:.1f} s after the kill"


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
