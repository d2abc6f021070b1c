# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What the manager makes of a service's announcements: a planned loss costs no step."""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.elastic import toy
from tests.elastic.conftest import wait_for, wait_until
from tests.elastic.driving import MakeManager, answering, down, lose, snapshot_of
from tests.elastic.toy import State

from elastic_service import Service
from pathways_elastic.errors import SliceShortageError
from pathways_elastic.manager import ElasticUtils, Event, EventKind, Manager
from pathways_slurm import notices
from pathways_slurm.notices import Back, Going, Notices, Shutdown
from pathways_slurm.paths import DEFAULT_NAME

RUN = "run-1"


@dataclass
class Announcer:
    """A service's notices.json."""

    directory: Path
    now: Notices = field(default_factory=lambda: Notices(RUN))

    @property
    def answers(self) -> frozenset[tuple[int, int]]:
        return notices.acknowledged(self.directory / notices.DIRECTORY)

    def say(
        self,
        going: Sequence[int] = (),
        back: Sequence[int] = (),
        ends: str | None = None,
        run: int = 2,
    ) -> None:
        """Announces slices of incarnation 1 that go, and of ``run`` that are back."""
        until = time.time() + 60
        self.now = self.now.changed_to(
            [Going(index, 1, until, "host 0 got SIGTERM") for index in going],
            [Back(index, run, time.time()) for index in back],
            None if ends is None else Shutdown(ends, time.time()),
        )
        notices.write(self.directory / notices.FILE, self.now)


@pytest.fixture
def announcer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Announcer:
    monkeypatch.setenv("PATHWAYS_HOME", str(tmp_path))
    # That of the emulator's is another, and its notices would be elsewhere.
    monkeypatch.setenv("PATHWAYS_NAME", DEFAULT_NAME)
    monkeypatch.setenv("PATHWAYS_RUN_ID", RUN)
    monkeypatch.setenv("PATHWAYS_ON_NOTICE", "forward")
    announced = Announcer(tmp_path)
    announced.say()
    return announced


class Loop:
    """The documented loop, one step at a time; every update is counted in the state."""

    def __init__(self, manager: Manager, handler: Callable[..., Any] = toy.handler) -> None:
        self.manager = manager
        self.handler = handler
        self.state = toy.new_state(toy.mesh_of(manager.good_slice_to_devices))
        self.step = 0

    def take_step(self) -> None:
        self.state = toy.update(self.state)
        self.manager.maybe_snapshot(step=self.step, snapshot=self.state)
        returned = self.manager.maybe_reshard_up(
            step=self.step, snapshot=self.state, elastic_handler=self.handler
        )
        if returned:
            self.state, self.step = returned
        self.step += 1

    def until(self, condition: Callable[[], object], what: str) -> None:
        def look() -> object:
            self.take_step()
            return condition() or None

        wait_for(look, what)

    def expect_every_step_once(self) -> None:
        assert toy.count_of(self.state) == self.step


@contextlib.contextmanager
def gone_and_back(service: Service, announcer: Announcer) -> Iterator[None]:
    """As soon as all slices are let go they go, and come back, while the program waits."""

    def go_and_come_back() -> None:
        wait_until(lambda: len(announcer.answers) == len(service.slices), "all are let go")
        for index in service.slices:
            service.kill(index)
        wait_until(lambda: not answering(), "all have gone")
        announcer.say()
        for index in service.slices:
            service.revive(index)

    with ThreadPoolExecutor(1) as world:
        done = world.submit(go_and_come_back)
        yield
        done.result()


class TestALossThatIsPlanned:
    def test_it_costs_no_step_and_the_slice_is_let_go_and_taken_back(
        self,
        service: Service,
        make_manager: MakeManager,
        announcer: Announcer,
        events: list[Event],
    ) -> None:
        # Neither a snapshot nor a look for slices would be due for a long time.
        manager = make_manager(snapshot_period=1_000_000, reshard_check_period=1_000_000)
        loop = Loop(manager)
        for _ in range(3):
            loop.take_step()
        announcer.say(going=[1])
        loop.until(lambda: manager.missing_slice_indices == {1}, "slice 1 is left")
        assert announcer.answers == {(1, 1)}
        loop.take_step()
        service.kill(1)
        wait_until(lambda: 1 not in answering(), "slice 1 has gone")
        announcer.say()
        for _ in range(3):
            loop.take_step()
        loop.expect_every_step_once()
        assert {d.slice_index for d in loop.state["sums"].sharding.device_set} == {0, 2}

        service.revive(1)
        wait_until(lambda: 1 in answering(), "slice 1 answers")
        announcer.say(back=[1])
        loop.until(lambda: not manager.missing_slice_indices, "slice 1 is used")
        loop.take_step()
        loop.expect_every_step_once()
        assert manager.down_event_count == 0
        assert [event.kind for event in events] == [
            EventKind.SLICES_GOING,
            EventKind.RESHARDED_DOWN,
            EventKind.SLICES_BACK,
            EventKind.RESHARDED_UP,
        ]
        assert events[0].reason == "slice 1 is about to go: host 0 got SIGTERM"
        assert events[1].reason == "training goes on, on slices [0, 2], without [1]"

    def test_a_slice_that_goes_is_not_taken_in_whatever_it_answers(
        self, make_manager: MakeManager, announcer: Announcer
    ) -> None:
        announcer.say(going=[2])
        manager = make_manager()
        assert manager.good_slice_indices == {0, 1}
        assert announcer.answers == set(), "the program may have been using it"
        loop = Loop(manager)
        for _ in range(10):
            loop.take_step()
        assert manager.missing_slice_indices == {2}
        assert announcer.answers == {(2, 1)}

    def test_with_too_few_that_stay_it_is_let_go_and_its_next_run_waited_for(
        self,
        service: Service,
        make_manager: MakeManager,
        announcer: Announcer,
        events: list[Event],
    ) -> None:
        """All slices go at once: the snapshot must not go with them."""
        manager = make_manager(min_slices=2, snapshot_period=1_000_000)
        loop = Loop(manager)
        for _ in range(3):
            loop.take_step()

        def handler(utils: ElasticUtils) -> tuple[State, int]:
            assert len(utils.good_slice_indices) >= 2
            return toy.handler(utils)

        loop.handler = handler
        announcer.say(going=[0, 1, 2])
        with gone_and_back(service, announcer):
            loop.until(lambda: announcer.answers, "all are let go")
        assert announcer.answers == {(0, 1), (1, 1), (2, 1)}
        loop.expect_every_step_once()
        assert manager.down_event_count == 0
        waiting = [event for event in events if event.kind is EventKind.WAITING_FOR_SLICES]
        assert waiting[0].reason.startswith("slices [] answer, and min_slices is 2: waiting")

    def test_a_slice_lost_meanwhile_is_a_down_event_and_the_one_that_goes_is_left_too(
        self, service: Service, make_manager: MakeManager, announcer: Announcer
    ) -> None:
        manager = make_manager()
        loop = Loop(manager)
        loop.state = snapshot_of(manager, 0, loop.state)
        announcer.say(going=[1])
        loop.state, loop.step = down(manager, lose(service, manager, 0))
        # The step that this state has done counts: a snapshot of it is there.
        loop.step += 1
        count = toy.count_of(loop.state) - loop.step
        loop.until(lambda: manager.good_slice_indices == {2}, "both are left")
        assert announcer.answers == {(1, 1)}
        assert manager.down_event_count == 1
        assert toy.count_of(loop.state) - loop.step == count

    @pytest.mark.parametrize("end", [KeyError, KeyboardInterrupt, SystemExit])
    def test_what_ends_the_handler_leaves_everything_as_it_was(
        self, make_manager: MakeManager, announcer: Announcer, end: type[BaseException]
    ) -> None:
        manager = make_manager()
        loop = Loop(manager)
        loop.take_step()

        def handler(_: ElasticUtils) -> None:
            raise end

        loop.handler = handler
        announcer.say(going=[0])
        with pytest.raises(end):
            loop.until(lambda: False, "the handler is called")
        assert manager.good_slice_indices == {0, 1, 2}
        assert announcer.answers == set()
        loop.handler = toy.handler
        loop.step += 1
        loop.until(lambda: announcer.answers == {(0, 1)}, "it is let go")
        assert manager.good_slice_indices == {1, 2}
        loop.expect_every_step_once()


class TestASliceThatIsAnnouncedAsBack:
    def test_it_is_tried_once_for_each_announcement_if_it_can_not_be_used(
        self,
        service: Service,
        make_manager: MakeManager,
        announcer: Announcer,
        events: list[Event],
    ) -> None:
        # No look would be due for a long time.
        manager = make_manager(snapshot_period=1_000_000, reshard_check_period=1_000_000)
        loop = Loop(manager)
        loop.state = snapshot_of(manager, 0, loop.state)
        loop.state, loop.step = down(manager, lose(service, manager, 1))
        loop.step += 1
        service.revive(1)
        wait_until(lambda: 1 in answering(), "slice 1 answers")
        calls: list[int] = []

        def handler(utils: ElasticUtils) -> None:
            calls.append(utils.attempt)
            raise toy.data_loss()

        loop.handler = handler
        announcer.say(back=[1])
        loop.until(lambda: calls, "the handler is called")
        assert calls == [0, 1, 2, 3]
        assert events[-1].kind is EventKind.RESHARD_UP_GIVEN_UP
        for _ in range(20):
            loop.take_step()
        assert calls == [0, 1, 2, 3]

        loop.handler = toy.handler
        announcer.say(back=[1], run=3)
        loop.until(lambda: not manager.missing_slice_indices, "slice 1 is used")
        assert manager.down_event_count == 1


class TestTheEndOfTheService:
    def test_slices_that_will_not_come_back_are_not_waited_for(
        self, service: Service, make_manager: MakeManager, announcer: Announcer
    ) -> None:
        manager = make_manager(min_slices=3)
        snapshot_of(manager, 0)
        error = lose(service, manager, 1)
        announcer.say(ends="asked to by SIGTERM")
        with pytest.raises(SliceShortageError, match="the service ends: asked to by SIGTERM"):
            down(manager, error)
