# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The manager with real slices: losses, and what it waits for."""

import itertools
import threading

import jax
import pytest
from tests.elastic import toy
from tests.elastic.conftest import wait_until
from tests.elastic.driving import MakeManager, answering, down, lose, snapshot_of, until_lost
from tests.elastic.toy import State

from elastic_service import Service
from pathways_elastic.errors import (
    ElasticError,
    SliceShortageError,
)
from pathways_elastic.manager import Event, EventKind, Manager


def down_while_it_returns(
    service: Service, manager: Manager, error: Exception, index: int
) -> State:
    """The state after a loss whose slice comes back while the manager waits."""
    back = threading.Timer(0.5, service.revive, (index,))
    back.start()
    state: State
    state, _ = down(manager, error)
    back.join()
    return state


class TestOneManager:
    def test_a_second_one_is_refused_until_the_first_is_closed(
        self, make_manager: MakeManager
    ) -> None:
        first = make_manager()
        with pytest.raises(ElasticError, match="there is a Manager already"):
            make_manager()
        first.close()
        with make_manager() as second, pytest.raises(ElasticError, match="already"):
            make_manager()
        make_manager()
        with pytest.raises(ElasticError, match="this Manager is closed"):
            second.maybe_snapshot(step=0, snapshot={"x": 1})

    def test_one_that_could_not_be_made_is_not_in_the_way(self, make_manager: MakeManager) -> None:
        with pytest.raises(ValueError, match="snapshot_period must be an integer >= 1, got 0"):
            make_manager(snapshot_period=0)
        with pytest.raises(
            ValueError, match=r"min_slices is 4, but devices has slices \[0, 1, 2\]"
        ):
            make_manager(min_slices=4)
        make_manager()

    def test_it_knows_good_and_missing_slices(
        self, service: Service, make_manager: MakeManager
    ) -> None:
        service.kill(1)
        wait_until(lambda: 1 not in answering(), "slice 1 is lost")
        manager = make_manager()
        assert manager.good_slice_indices == {0, 2}
        assert manager.missing_slice_indices == {1}
        assert {device.slice_index for device in manager.good_devices} == {0, 2}
        assert len(manager.good_devices) == 8

    def test_min_slices_is_what_cluster_env_says(
        self, service: Service, make_manager: MakeManager, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PATHWAYS_MIN_SLICES", "3")
        service.kill(0)
        wait_until(lambda: 0 not in answering(), "slice 0 is lost")
        with pytest.raises(SliceShortageError, match=r"fewer than 3 slices \(min_slices\)"):
            make_manager(slices_timeout_s=0.5)


class TestALoss:
    def test_the_handler_gets_the_snapshot_on_the_slices_that_are_left(
        self, service: Service, make_manager: MakeManager, events: list[Event]
    ) -> None:
        manager = make_manager()
        state = toy.update(snapshot_of(manager, 0))
        state = toy.update(snapshot_of(manager, 2, state))
        error = lose(service, manager, 1)
        state, step = down(manager, error)
        assert (step, toy.count_of(state)) == (2, 1)
        assert {d.slice_index for d in state["sums"].sharding.device_set} == {0, 2}
        assert manager.good_slice_indices == {0, 2}
        assert manager.down_event_count == 1
        assert [event.kind for event in events] == [
            EventKind.SLICES_LOST,
            EventKind.RESHARDED_DOWN,
        ]
        assert "slice 1" in events[0].reason
        assert (events[1].step, events[1].missing) == (2, {1})
        assert toy.count_of(toy.update(state)) == 2

    def test_what_nobody_has_placed_goes_to_a_slice_that_is_there(
        self, service: Service, make_manager: MakeManager
    ) -> None:
        manager = make_manager()
        snapshot_of(manager, 0)
        state, _ = down(manager, lose(service, manager, 0))
        assert jax.numpy.ones(3).sum() == 3
        assert jax.config.jax_default_device in manager.good_devices
        manager.close()
        assert jax.config.jax_default_device is None
        assert toy.count_of(state) == 0

    def test_two_slices_at_once_are_one_event(
        self, service: Service, make_manager: MakeManager
    ) -> None:
        manager = make_manager()
        snapshot_of(manager, 0)
        error = lose(service, manager, 0, 2)
        state, _ = down(manager, error)
        assert manager.good_slice_indices == {1}
        assert manager.down_event_count == 1
        assert toy.count_of(state) == 0

    def test_a_slice_that_is_back_already_has_lost_its_data_all_the_same(
        self, service: Service, make_manager: MakeManager
    ) -> None:
        manager = make_manager()
        snapshot_of(manager, 0)
        error = lose(service, manager, 1)
        service.revive(1)
        wait_until(lambda: 1 in answering(), "slice 1 answers")
        internal = jax.errors.JaxRuntimeError("INTERNAL: collective failed")
        state, _ = down(manager, internal)
        assert error is not internal
        assert manager.good_slice_indices == {0, 1, 2}
        assert toy.count_of(toy.update(state)) == 1

    def test_during_a_snapshot_it_leaves_the_last_whole_one(
        self, service: Service, make_manager: MakeManager
    ) -> None:
        manager = make_manager()
        state = toy.update(snapshot_of(manager, 0))
        error = lose(service, manager, 2)
        manager.maybe_snapshot(step=2, snapshot=state)
        steps = itertools.count(4, 2)
        until_lost(lambda: manager.maybe_snapshot(step=next(steps), snapshot=state))
        state, step = down(manager, error)
        assert (step, toy.count_of(state)) == (0, 0)

    def test_nobody_reads_a_result_and_it_is_noticed_all_the_same(
        self, service: Service, make_manager: MakeManager
    ) -> None:
        manager = make_manager()
        state = snapshot_of(manager, 0)
        service.kill(1)
        steps = itertools.count(1)

        def train() -> None:
            nonlocal state
            state = toy.update(state)
            manager.maybe_snapshot(step=next(steps), snapshot=state)

        _, step = down(manager, until_lost(train))
        assert step % 2 == 0


class TestOtherErrors:
    @pytest.mark.parametrize(
        "error",
        [
            jax.errors.JaxRuntimeError("INTERNAL: a bug of the program's own"),
            jax.errors.JaxRuntimeError("INVALID_ARGUMENT: shapes differ"),
            jax.errors.JaxRuntimeError("UNAVAILABLE: the proxy is gone"),
            RuntimeError("DATA_LOSS, says somebody else"),
        ],
    )
    def test_an_error_that_is_no_loss_is_raised_as_it_was(
        self, make_manager: MakeManager, error: Exception, events: list[Event]
    ) -> None:
        manager = make_manager()
        with pytest.raises(type(error)) as caught:
            down(manager, error)
        assert caught.value is error
        assert (manager.down_event_count, events) == (0, [])

    def test_an_internal_error_with_a_slice_gone_is_a_loss(
        self, service: Service, make_manager: MakeManager
    ) -> None:
        manager = make_manager()
        snapshot_of(manager, 0)
        lose(service, manager, 1)
        down(manager, jax.errors.JaxRuntimeError("INTERNAL: collective failed"))
        assert manager.missing_slice_indices == {1}


class TestWaiting:
    def test_too_few_slices_are_waited_for(
        self, service: Service, make_manager: MakeManager, events: list[Event]
    ) -> None:
        manager = make_manager(min_slices=3)
        snapshot_of(manager, 0)
        error = lose(service, manager, 1)
        state = down_while_it_returns(service, manager, error, 1)
        assert manager.good_slice_indices == {0, 1, 2}
        waiting = [event for event in events if event.kind is EventKind.WAITING_FOR_SLICES]
        assert "slices [0, 2] answer, and min_slices is 3" in waiting[0].reason
        assert toy.count_of(state) == 0

    def test_it_is_told_how_far_waiting_has_come(
        self, service: Service, make_manager: MakeManager, events: list[Event]
    ) -> None:
        manager = make_manager(min_slices=3)
        snapshot_of(manager, 0)
        error = lose(service, manager, 1, 2)
        one_is_back = "slices [0, 1] answer of the 3 that are waited for; "

        def come_back_one_by_one() -> None:
            service.revive(1)
            wait_until(lambda: any(e.reason.startswith(one_is_back) for e in events), one_is_back)
            service.revive(2)

        world = threading.Thread(target=come_back_one_by_one)
        world.start()
        down(manager, error)
        world.join()
        assert manager.good_slice_indices == {0, 1, 2}

    def test_no_slice_left_is_an_error_after_the_deadline(
        self, service: Service, make_manager: MakeManager
    ) -> None:
        manager = make_manager(slices_timeout_s=0.5)
        snapshot_of(manager, 0)
        error = lose(service, manager, 0, 1, 2)
        with pytest.raises(SliceShortageError, match="fewer than 1 slices"):
            down(manager, error)

    def test_a_slice_that_returns_within_the_grace_period_costs_no_smaller_mesh(
        self, service: Service, make_manager: MakeManager, events: list[Event]
    ) -> None:
        manager = make_manager(grace_period_s=30.0)
        snapshot_of(manager, 0)
        error = lose(service, manager, 1)
        state = down_while_it_returns(service, manager, error, 1)
        assert manager.good_slice_indices == {0, 1, 2}
        assert "giving slices [1] 30 s to return" in [event.reason for event in events]
        assert toy.count_of(toy.update(state)) == 1

    def test_one_that_does_not_is_left_behind(
        self, service: Service, make_manager: MakeManager
    ) -> None:
        manager = make_manager(grace_period_s=0.3)
        snapshot_of(manager, 0)
        state, _ = down(manager, lose(service, manager, 1))
        assert manager.good_slice_indices == {0, 2}
        assert toy.count_of(state) == 0
