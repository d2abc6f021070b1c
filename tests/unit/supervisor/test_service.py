# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The loop: what is saved before what is done, and what a full disk or a refusal leads to."""

import errno
import itertools
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from pathways_slurm.events import EventLog, read_events
from pathways_slurm.execute import Executor
from pathways_slurm.model import (
    Component,
    ComponentView,
    Memory,
    Observation,
    Rules,
    Submission,
)
from pathways_slurm.observe import Observer
from pathways_slurm.plan import Action, Announce, Cancel, Command, StartComponent, Submit
from pathways_slurm.scheduler.base import Node, SchedulerError, SchedulerUnavailable, Task
from pathways_slurm.service import Service
from pathways_slurm.states import ServicePhase, TaskState
from pathways_slurm.wakeup import Wakeup

RULES = Rules(min_slices=1, max_slices=1, tick_s=0.0)


@dataclass
class Stage:
    """A world in which an array runs once it is submitted; asks to stop after some looks."""

    looks: int = 3
    submit_error: Exception | None = None
    performed: list[Action] = field(default_factory=list)
    submitted: bool = False
    alive: set[Component] = field(default_factory=set)
    cancelled: bool = False
    faults: dict[str, str] = field(default_factory=dict)

    def look(self, _: Memory, stop_reason: str) -> Observation:
        self.looks -= 1
        state = TaskState.CANCELLED if self.cancelled else TaskState.RUNNING
        task = Task("7_0", 0, state, nodes=(Node("n0", "127.0.1.1"),))
        return Observation(
            tasks=(task,) if self.submitted else (),
            stale_reason="",
            silent={},
            components={
                c: ComponentView(alive=c in self.alive, answers=c in self.alive) for c in Component
            },
            published=False,
            stop_reason=stop_reason or ("enough" if self.looks <= 0 else ""),
            faults=self.faults,
        )

    def perform(self, action: Action, memory: Memory) -> Memory:
        self.performed.append(action)
        match action:
            case Submit(submission):
                if self.submit_error is not None:
                    raise self.submit_error
                self.submitted = True
                return memory.with_array(submission.tag, "7")
            case StartComponent(component):
                self.alive.add(component)
            case Cancel():
                self.cancelled = True
            case Command() | Announce():
                pass
            case _:
                self.alive.clear()
        return memory


class _Observer(Observer):
    def __init__(self, stage: Stage) -> None:
        self.__dict__["look"] = stage.look
        self.__dict__["stamps"] = tuple
        self.__dict__["begun_to_answer"] = bool


class _Executor(Executor):
    def __init__(self, stage: Stage) -> None:
        self.__dict__["perform"] = stage.perform


def _ignore(*_: object) -> None:
    """Takes whatever there is to save or show."""


def _service(stage: Stage, tmp_path: Path, save: Callable[[Memory], None]) -> Service:
    return Service(
        rules=RULES,
        memory=Memory("run"),
        observer=_Observer(stage),
        executor=_Executor(stage),
        events=EventLog(tmp_path / "events.jsonl"),
        save=save,
        show=_ignore,
    )


def test_the_intent_to_submit_is_saved_before_the_submission(tmp_path: Path) -> None:
    stage = Stage()
    saved_when_submitted: list[bool] = []

    def save(memory: Memory) -> None:
        intended = [s for s in memory.submissions if not s.array_id]
        if intended:
            saved_when_submitted.append(not stage.submitted)

    with Wakeup() as wakeup:
        assert _service(stage, tmp_path, save).run(wakeup) == 0
    assert saved_when_submitted == [True]
    assert stage.submitted


def test_nothing_is_submitted_while_the_disk_is_full(tmp_path: Path) -> None:
    stage = Stage(looks=6)
    refusals = iter([True, True, True])

    def save(memory: Memory) -> None:
        del memory
        if next(refusals, False):
            raise OSError(errno.ENOSPC, "No space left on device")
        assert not any(isinstance(a, Submit) for a in stage.performed[:1]), "the RM starts anyway"

    with Wakeup() as wakeup:
        assert _service(stage, tmp_path, save).run(wakeup) == 0
    kinds = [type(action) for action in stage.performed]
    assert StartComponent in kinds
    assert kinds.index(Submit) > kinds.index(StartComponent)
    assert stage.submitted
    assert stage.cancelled


def test_a_refused_array_ends_the_service_with_the_reason(tmp_path: Path) -> None:
    stage = Stage(submit_error=SchedulerError("more hosts than the partition has"))
    service = _service(stage, tmp_path, _ignore)
    with Wakeup() as wakeup:
        assert service.run(wakeup) == 1
    assert service.memory.phase is ServicePhase.FAILED
    last = read_events(tmp_path / "events.jsonl")[-1]
    assert "more hosts than the partition has" in last.message
    assert not stage.alive


def test_slices_that_are_refused_later_are_asked_for_again_and_the_others_go_on(
    tmp_path: Path,
) -> None:
    stage = Stage(looks=8, submit_error=SchedulerError("partition is down"), submitted=True)
    service = _service(stage, tmp_path, _ignore)
    service.rules = replace(RULES, max_slices=2)
    submissions = (Submission("run-0", (0,), 1, "7"), Submission("run-1", (1,), 2))
    service.memory = replace(service.memory, submissions=submissions)
    now = 1000.0
    service.clock = lambda: now + 10.0 * (8 - stage.looks)
    with Wakeup() as wakeup:
        assert service.run(wakeup) == 0
    asked = [action for action in stage.performed if isinstance(action, Submit)]
    # In 80 s, and never for the first array again.
    assert [action.submission.tag for action in asked] == ["run-1"] * 3
    told = [e for e in read_events(tmp_path / "events.jsonl") if e.reason == "SubmissionRefused"]
    assert [event.subject for event in told] == ["scheduler"]
    assert "partition is down; asked again every 30 s" in told[0].message
    assert stage.cancelled


def test_a_submission_without_an_answer_is_tried_again(tmp_path: Path) -> None:
    stage = Stage(looks=4, submit_error=SchedulerUnavailable("timed out"))
    with Wakeup() as wakeup:
        assert _service(stage, tmp_path, _ignore).run(wakeup) == 0
    tags = {a.submission.tag for a in stage.performed if isinstance(a, Submit)}
    count = sum(isinstance(a, Submit) for a in stage.performed)
    assert (len(tags), count) == (1, 3)


def test_an_unwritable_event_log_does_not_end_the_service(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").mkdir()
    stage = Stage()
    with Wakeup() as wakeup:
        assert _service(stage, tmp_path, _ignore).run(wakeup) == 0


@pytest.mark.parametrize("reason", ["left over", "asked to by SIGTERM"])
def test_a_run_that_is_only_ended_starts_nothing(tmp_path: Path, reason: str) -> None:
    stage = Stage(submitted=True, alive={Component.RM})
    with Wakeup() as wakeup:
        assert _service(stage, tmp_path, _ignore).run(wakeup, reason) == 0
    assert not any(isinstance(a, Submit | StartComponent) for a in stage.performed)
    assert stage.cancelled
    assert not stage.alive


def test_what_can_not_be_read_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage(looks=5, faults={"the orders": "can't be read: Input/output error"})
    with Wakeup() as wakeup:
        assert _service(stage, tmp_path, _ignore).run(wakeup) == 0
    assert caplog.text.count("Input/output error") == 1


def test_the_next_look_comes_as_soon_as_there_is_something_to_see(tmp_path: Path) -> None:
    stage = Stage(looks=2)
    service = _service(stage, tmp_path, _ignore)
    service.rules = replace(RULES, tick_s=60.0)
    numbers = itertools.count()
    service.observer.__dict__["stamps"] = lambda: (next(numbers),)
    began = time.monotonic()
    with Wakeup() as wakeup:
        assert service.run(wakeup) == 0
    assert time.monotonic() - began < 30


def test_the_next_look_comes_as_soon_as_what_starts_begins_to_answer(tmp_path: Path) -> None:
    stage = Stage(looks=3, alive=set(Component))
    service = _service(stage, tmp_path, _ignore)
    service.rules = replace(RULES, tick_s=60.0)
    asked: list[set[Component]] = []

    def look(memory: Memory, stop_reason: str) -> Observation:
        seen = stage.look(memory, stop_reason)
        silent = replace(seen.components[Component.PROXY], answers=False)
        return replace(seen, components={**seen.components, Component.PROXY: silent})

    def begun(starting: Iterable[Component]) -> bool:
        asked.append(set(starting))
        return Component.PROXY in asked[-1]

    service.observer.__dict__.update(look=look, begun_to_answer=begun)
    began = time.monotonic()
    with Wakeup() as wakeup:
        assert service.run(wakeup) == 0
    assert time.monotonic() - began < 30
    assert asked[-1] == {Component.PROXY}, "it lives, and RM has answered"
