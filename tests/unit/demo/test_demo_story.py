# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The demo's story: from what was seen to lines, summary and verdict."""

from typing import Any

import pytest

from demo_story import (
    Host,
    Phase,
    Plan,
    Record,
    SliceView,
    Story,
    Victim,
    parse_record,
    slice_in,
)

PLAN = Plan(slices=3, min_slices=2, steps=60)
ALL, LEFT = (0, 1, 2), (0, 2)
VICTIM = Victim("slice-1-host-0", 4711, incarnation=1)


def loss_at(step: int) -> float:
    return 6.0 - step / 20


def train(story: Story, first: int, last: int, slices: tuple[int, ...], at: float) -> list[str]:
    """Steps ``first`` .. ``last``, a tenth of a second each, the first at ``at``."""
    lines = []
    for i, step in enumerate(range(first, last + 1)):
        lines += story.on_record(Record("step", at + i / 10, step, loss_at(step), slices))
    return lines


def good_story() -> tuple[Story, list[str]]:
    story = Story(PLAN)
    lines = train(story, 1, 25, ALL, at=100.0)
    lines += story.on_kill(110.0, VICTIM)
    lines += train(story, 26, 26, ALL, at=110.1)  # was under way
    lines += story.on_record(Record("error", 110.2, message="DATA_LOSS: slice 1"))
    lines += story.on_record(Record("slices", 110.3, slices=LEFT))
    lines += story.on_record(Record("snapshot", 110.4, step=20, slices=LEFT))
    lines += train(story, 21, 30, LEFT, at=111.5)
    lines += story.on_slice(112.0, SliceView("STARTING", 2))
    lines += story.on_slice(113.0, SliceView("READY", 2))
    lines += train(story, 31, 60, ALL, at=114.0)
    return story, lines


def failed(story: Story) -> list[str]:
    return [check.text.split(":")[0] for check in story.checks() if not check.passed]


def test_good_story_passes_every_check() -> None:
    story, _ = good_story()
    assert failed(story) == []
    assert story.phase is Phase.RESTORED
    assert story.summary(ok=True) == {
        "slices": 3,
        "min_slices": 2,
        "killed_slice": 1,
        "steps": 60,
        "loss_first": loss_at(1),
        "loss_last": loss_at(60),
        "resumed_after_s": 1.5,
        "slice_back_after_s": 3.0,
        "full_mesh_after_s": 4.0,
        "steps_lost": 6,
        "ok": True,
    }


def test_good_story_is_told_in_order() -> None:
    _, lines = good_story()
    told = [line for line in lines if not line.startswith("step ")]
    assert told == [
        "first step on all 3 slices",
        "slice 1 killed after step 25 (kill -9 of pid 4711, the worker on slice-1-host-0)",
        "training noticed after step 26: DATA_LOSS: slice 1",
        "training on slices 0,2",
        "goes on from the snapshot of step 20",
        "next step, on slices 0,2, 1.5 s after the kill (6 steps lost)",
        "slice 1 is ready again, 3.0 s after the kill (run 2)",
        "all 3 slices train again, 4.0 s after the kill",
    ]
    steps = [int(line.split()[1].split("/")[0]) for line in lines if line.startswith("step ")]
    assert steps == [1, 6, 12, 18, 24, 24, 30, 36, 42, 48, 54, 60]


def test_nothing_happened() -> None:
    story = Story(PLAN)
    assert len(failed(story)) == len(story.checks())
    summary = story.summary(ok=False)
    assert summary.pop("ok") is False
    assert (summary.pop("slices"), summary.pop("min_slices"), summary.pop("steps")) == (3, 2, 0)
    assert set(summary.values()) == {None}


def test_slice_that_does_not_come_back_fails() -> None:
    story = Story(PLAN)
    train(story, 1, 25, ALL, at=100.0)
    story.on_kill(110.0, VICTIM)
    train(story, 21, 60, LEFT, at=111.5)
    assert failed(story) == [
        "slice 1 came back",
        "all 3 slices trained again",
        "all slices took part in the last 5 of 60 steps",
    ]


def test_training_that_does_not_resume_fails() -> None:
    story = Story(PLAN)
    train(story, 1, 25, ALL, at=100.0)
    story.on_kill(110.0, VICTIM)
    train(story, 26, 60, ALL, at=110.1)
    assert "training resumed on slices 0,2" in failed(story)


@pytest.mark.parametrize(
    ("stop", "slices"), [(59, ALL), (60, LEFT)], ids=["too few steps", "not on all slices"]
)
def test_last_steps_must_be_on_all_slices(stop: int, slices: tuple[int, ...]) -> None:
    story, _ = good_story()
    story.steps = story.steps[:-30]
    train(story, 31, 57, ALL, at=114.0)
    train(story, 58, stop, slices, at=117.0)
    assert failed(story) == ["all slices took part in the last 5 of 60 steps"]


def test_loss_that_does_not_fall_fails() -> None:
    story, _ = good_story()
    story.steps[-1] = Record("step", 117.0, 60, 0.81 * story.steps[0].loss, ALL)
    assert failed(story) == ["the loss fell"]


@pytest.mark.parametrize(
    "seen",
    [SliceView("READY", 1), SliceView("STARTING", 2), SliceView("PENDING", 0)],
    ids=["the same run", "not ready", "not started"],
)
def test_slice_is_back_only_as_a_newer_run_that_is_ready(seen: SliceView) -> None:
    story = Story(PLAN)
    train(story, 1, 25, ALL, at=100.0)
    assert story.on_slice(109.0, SliceView("READY", 2)) == []  # before the kill
    story.on_kill(110.0, VICTIM)
    assert story.on_slice(111.0, seen) == []
    assert story.wants_status
    assert story.back_after is None


def test_the_kill_waits_for_all_slices_and_its_step() -> None:
    story = Story(PLAN)
    assert PLAN.kill_at == 25
    train(story, 1, 30, LEFT, at=100.0)
    assert not story.wants_victim
    train(story, 2, 12, ALL, at=110.0)
    assert story.phase is Phase.TRAINING
    assert story.wants_kill, "the step had come when all slices joined"
    story = Story(PLAN)
    train(story, 1, 11, ALL, at=100.0)
    assert not story.wants_victim
    train(story, 12, 24, ALL, at=110.0)
    assert story.wants_victim
    assert not story.wants_kill
    train(story, 25, 25, ALL, at=120.0)
    assert story.wants_kill
    story.on_kill(121.0, VICTIM)
    assert not story.wants_kill
    assert not story.wants_victim


@pytest.mark.parametrize(("steps", "kill_at"), [(30, 15), (60, 25), (100, 35), (150, 55)])
def test_the_kill_is_between_two_checkpoints(steps: int, kill_at: int) -> None:
    assert Plan(3, 2, steps).kill_at == kill_at


def test_steps_last_until_a_slice_is_back() -> None:
    assert PLAN.step_time(0.0) == 0.0
    for steps in (30, 60, 150):
        plan = Plan(3, 2, steps)
        assert plan.step_time(15.0) * (steps - plan.kill_at) == pytest.approx(15.0, rel=0.01)


@pytest.mark.parametrize(
    ("line", "record"),
    [
        (
            '{"event": "step", "step": 3, "loss": 2.5, "slices": [2, 0], "time": 9}',
            Record("step", 9.0, 3, 2.5, (0, 2)),
        ),
        ('{"event": "slices", "active": [1], "time": 9.5}', Record("slices", 9.5, slices=(1,))),
        (
            '{"event": "error", "message": "DATA_LOSS", "time": 1}',
            Record("error", 1.0, message="DATA_LOSS"),
        ),
    ],
)
def test_metrics_are_read(line: str, record: Record) -> None:
    assert parse_record(line) == record


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", "Expecting value"),
        ("{", "Expecting property name"),
        ("[]", "not a line of training metrics"),
        ("3", "not a line of training metrics"),
        ('{"event": "step"}', "not a line of training metrics"),
    ],
)
def test_anything_else_is_no_metrics(line: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_record(line)


def test_status_of_a_slice_is_found_by_its_index() -> None:
    status: dict[str, Any] = {
        "slices": [
            {"index": 2, "state": "PENDING", "incarnation": None, "reason": "Resources"},
            {
                "index": 1,
                "state": "READY",
                "incarnation": 3,
                "reason": "",
                "task": "44_1",
                "hosts": [{"node": "n", "address": "127.0.2.1", "pid": 7}],
            },
        ]
    }
    assert slice_in(status, 1) == SliceView("READY", 3, "", (Host("n", 7),), "44_1")
    assert slice_in(status, 2) == SliceView("PENDING", 0, "Resources", ())
    assert slice_in(status, 0) is None
    assert slice_in({"service": "STOPPED"}, 0) is None
