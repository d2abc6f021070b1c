# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What is kept of snapshots while some are moved to the client: never less than there is."""

import threading
import time
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from pathways_elastic import snapshots
from pathways_elastic.recorder import Recorder

PATIENCE_S = 60.0

type Meanwhile = Callable[[], object]


def nothing() -> None:
    pass


@dataclass(frozen=True)
class Pretended:
    """A snapshot as far as the recorder knows one, of which slices have copies, or the client.

    Attributes:
        slices: That have all of it, each by itself; none if it is in the client.
        at_kept_on: Happens while its slices are asked what is left of it.
        at_to_client: Happens while it is copied.
    """

    step: int
    slices: Set[int]
    at_kept_on: Meanwhile = field(default=nothing, compare=False)
    at_to_client: Meanwhile = field(default=nothing, compare=False)

    @property
    def safe(self) -> bool:
        return len(self.slices) != 1

    def whole_without(self, slices: Set[int]) -> bool:
        return not self.slices or bool(self.slices - slices)

    def kept_on(self, slices: Set[int]) -> "Pretended | None":
        self.at_kept_on()
        if not self.slices:
            return self
        left = self.slices & slices
        return replace(self, slices=left) if left else None

    def to_client(self) -> "Pretended":
        self.at_to_client()
        return replace(self, slices=frozenset())


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    """One whose states are the snapshots that shall become whole."""

    def stage(step: int, state: Pretended) -> Any:
        return SimpleNamespace(step=step, collect=lambda: state)

    monkeypatch.setattr(snapshots, "stage", stage)
    made = Recorder(2)
    yield made
    made.close()


def take(recorder: Recorder, snapshot: Pretended) -> None:
    recorder.record(snapshot.step, snapshot)
    assert recorder.wait(PATIENCE_S)


def wait_until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def kept(recorder: Recorder) -> list[tuple[int, Set[int]]]:
    """Steps and slices, newest first."""
    whole: tuple[Any, ...] = recorder.whole
    return [(snapshot.step, snapshot.slices) for snapshot in whole]


def test_copies_elsewhere_are_let_go_and_what_is_not_whole_without_them_is_told(
    recorder: Recorder,
) -> None:
    take(recorder, Pretended(3, {0}))
    take(recorder, Pretended(4, {0, 1, 2}))
    assert recorder.keep({1, 2}) == [3]
    assert kept(recorder) == [(4, {1, 2})]
    assert recorder.keep({0}) == [4]
    assert kept(recorder) == []


def test_what_is_moved_to_the_client_while_its_slice_is_given_up_is_kept(
    recorder: Recorder,
) -> None:
    asked = threading.Event()

    def be_moved() -> None:
        asked.set()
        wait_until(lambda: kept(recorder) == [(5, frozenset())], "it is moved")

    take(recorder, Pretended(5, {1}, at_kept_on=be_moved, at_to_client=asked.wait))
    recorder.secure()
    assert recorder.keep({0}) == []
    assert kept(recorder) == [(5, frozenset())]


def test_a_move_that_has_begun_counts_whatever_is_let_go_meanwhile(recorder: Recorder) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def move() -> None:
        begun.set()
        go_on.wait()

    take(recorder, Pretended(5, {1}, at_to_client=move))
    recorder.secure()
    assert begun.wait(PATIENCE_S)
    assert recorder.keep({1}) == []
    assert kept(recorder) == [(5, {1})]
    go_on.set()
    wait_until(lambda: kept(recorder) == [(5, frozenset())], "it is moved")
