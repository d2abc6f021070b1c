# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Slices that are back: taken in, at a good moment."""

import os
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from tests.elastic import toy
from tests.elastic.conftest import wait_for, wait_until
from tests.elastic.driving import MakeManager, answering, down, lose, snapshot_of
from tests.elastic.toy import State

from elastic_service import Service
from pathways_elastic.manager import ElasticUtils, Event, EventKind, Manager


class TestReshardUp:
    def up(
        self, manager: Manager, state: State, step: int, handler: Callable[..., Any] = toy.handler
    ) -> Any:
        """Calls it step by step until it has done something."""
        for later in range(step, step + 10_000):
            returned = manager.maybe_reshard_up(step=later, snapshot=state, elastic_handler=handler)
            if returned is not None:
                return returned
            time.sleep(0.01)
        raise AssertionError("it has never called the handler")

    def test_a_slice_that_is_back_is_taken_in_at_once_with_this_steps_state(
        self, service: Service, make_manager: MakeManager, events: list[Event]
    ) -> None:
        manager = make_manager(snapshot_period=1000)
        snapshot_of(manager, 0)
        state, _ = down(manager, lose(service, manager, 1))
        for _ in range(3):
            state = toy.update(state)
        service.revive(1)
        state, step = self.up(manager, state, 3)
        assert toy.count_of(state) == 3
        assert step >= 3
        assert manager.good_slice_indices == {0, 1, 2}
        assert {d.slice_index for d in state["sums"].sharding.device_set} == {0, 1, 2}
        assert events[-1].kind is EventKind.RESHARDED_UP
        assert manager.down_event_count == 1

    def test_with_all_slices_there_nothing_is_done(self, make_manager: MakeManager) -> None:
        manager = make_manager()
        returned = manager.maybe_reshard_up(step=0, snapshot={}, elastic_handler=toy.handler)
        assert returned is None
        assert manager.snapshots == ()

    def test_a_step_with_a_snapshot_gets_no_other(
        self, service: Service, make_manager: MakeManager
    ) -> None:
        manager = make_manager(snapshot_period=1, reshard_check_period=1)
        snapshot_of(manager, 0)
        state, _ = down(manager, lose(service, manager, 2))
        service.revive(2)
        wait_until(lambda: 2 in answering(), "slice 2 answers")
        state = snapshot_of(manager, 1, toy.update(state))
        # What was donated can't be copied any more, so none is taken if this works.
        toy.update(state)

        def look() -> Any:
            return manager.maybe_reshard_up(step=1, snapshot=state, elastic_handler=toy.handler)

        state, step = wait_for(look, "it is taken in")
        assert (step, toy.count_of(state)) == (1, 1)

    def test_a_returning_slice_that_goes_again_changes_nothing(
        self, service: Service, make_manager: MakeManager, events: list[Event]
    ) -> None:
        manager = make_manager()
        snapshot_of(manager, 0)
        state, step = down(manager, lose(service, manager, 1))
        state = toy.update(state)
        service.revive(1)

        def handler(utils: ElasticUtils) -> tuple[State, int]:
            restored = toy.handler(utils)
            error = lose(service, manager, 1)
            del restored
            raise error

        for later in range(step + 1, 10_000):
            assert (
                manager.maybe_reshard_up(step=later, snapshot=state, elastic_handler=handler)
                is None
            )
            if events[-1].kind is EventKind.RESHARD_UP_GIVEN_UP:
                break
            time.sleep(0.01)
        assert manager.good_slice_indices == {0, 2}
        assert toy.count_of(toy.update(state)) == 2
        assert manager.down_event_count == 1

    def test_without_room_for_a_second_state_training_goes_on_as_before_until_a_later_look(
        self, service: Service, make_manager: MakeManager, events: list[Event]
    ) -> None:
        period = 100
        manager = make_manager(reshard_check_period=period, snapshot_period=10**6)
        snapshot_of(manager, 0)
        state, _ = down(manager, lose(service, manager, 1))
        state = toy.update(state)
        service.revive(1)
        wait_until(lambda: 1 in answering(), "slice 1 answers")
        calls: list[int] = []

        def handler(utils: ElasticUtils) -> tuple[State, int]:
            restored = toy.handler(utils)
            calls.append(utils.attempt)
            more_than_there_is = jax.jit(lambda: jnp.ones((1 << 40,)))
            jax.block_until_ready(more_than_there_is())
            return restored

        for step in range(period, 10_000):
            assert (
                manager.maybe_reshard_up(step=step, snapshot=state, elastic_handler=handler) is None
            )
            if calls:
                break
            time.sleep(0.01)
        assert calls == [0]
        assert events[-1].kind is EventKind.RESHARD_UP_GIVEN_UP
        assert events[-1].reason.startswith("RESOURCE_EXHAUSTED")
        assert EventKind.ATTEMPT_FAILED not in [event.kind for event in events]
        assert manager.good_slice_indices == {0, 2}
        # The next look begins at the end of this.
        for later in range(step + 1, (step // period + 1) * period + 1):
            manager.maybe_reshard_up(step=later, snapshot=state, elastic_handler=handler)
        assert calls == [0]
        state = toy.update(state)
        state, _ = self.up(manager, state, later + 1)
        assert manager.good_slice_indices == {0, 1, 2}
        assert toy.count_of(state) == 2
        assert manager.down_event_count == 1

    def test_a_good_slice_that_goes_meanwhile_is_a_down_event(
        self, service: Service, make_manager: MakeManager
    ) -> None:
        manager = make_manager()
        snapshot_of(manager, 0)
        state, step = down(manager, lose(service, manager, 1))
        service.revive(1)

        def handler(_: ElasticUtils) -> None:
            raise lose(service, manager, 2)

        with pytest.raises(jax.errors.JaxRuntimeError, match="DATA_LOSS: slice 2") as caught:
            self.up(manager, state, step + 1, handler)
        assert manager.good_slice_indices == {0, 2}
        state, _ = down(manager, caught.value)
        assert manager.good_slice_indices == {0, 1}
        assert manager.down_event_count == 2
        assert toy.count_of(state) == 0

    @pytest.mark.parametrize("end", [KeyError, KeyboardInterrupt, SystemExit])
    def test_what_ends_the_handler_is_raised_and_the_slices_are_those_before(
        self, service: Service, make_manager: MakeManager, end: type[BaseException]
    ) -> None:
        manager = make_manager()
        snapshot_of(manager, 0)
        state, step = down(manager, lose(service, manager, 1))
        service.revive(1)

        def handler(_: ElasticUtils) -> None:
            raise end

        with pytest.raises(end):
            self.up(manager, state, step + 1, handler)
        assert manager.good_slice_indices == {0, 2}
        assert os.environ["PATHWAYS_MIN_SLICES"] == "1"
        assert toy.count_of(toy.update(state)) == 1
