# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The manager with real slices: what it does, counts and refuses."""

import functools
import itertools
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from tests.elastic import toy
from tests.elastic.conftest import PATIENCE_S, wait_for, wait_until
from tests.elastic.toy import State

from elastic_service import Service
from pathways_elastic.detection import Liveness, active, slices_of
from pathways_elastic.errors import (
    DownEventLimitError,
    ElasticError,
    HandlerError,
    HandlerTimeoutError,
    NoSnapshotError,
    RetryLimitError,
    SliceShortageError,
    SnapshotError,
)
from pathways_elastic.manager import ElasticUtils, Event, EventKind, Manager

type MakeManager = Callable[..., Manager]


def down(manager: Manager, error: Exception, handler: Callable[..., Any] = toy.handler) -> Any:
    return manager.maybe_reshard_down(error=error, elastic_handler=handler)


def lose(service: Service, manager: Manager, *indices: int) -> jax.errors.JaxRuntimeError:
    """Kills slices; returns the error that a program sees."""
    assert indices
    for index in indices:
        data = jax.device_put(np.float32(1), manager.good_slice_to_devices[index][0])
        service.kill(index)
        # Anew each time: that an array was ready once is not asked again.
        error = until_lost(functools.partial(read_anew, data))
    return error


def read_anew(data: jax.Array) -> None:
    jax.block_until_ready(jax.device_put(data, data.sharding, may_alias=False))


def answering() -> frozenset[int]:
    """The slices that can be used now."""
    slices = slices_of(jax.devices())
    return active(slices, Liveness(slices, 10.0))


def until_lost(action: Callable[[], object]) -> jax.errors.JaxRuntimeError:
    """Does something again and again until the loss of a slice shows; returns the error."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            action()
        except jax.errors.JaxRuntimeError as error:
            return error
    raise AssertionError(f"no loss seen within {PATIENCE_S} s")


def snapshot_of(manager: Manager, step: int, state: State | None = None) -> State:
    """Takes a snapshot and waits until it is whole."""
    if state is None:
        state = toy.new_state(toy.mesh_of(manager.good_slice_to_devices))
    manager.maybe_snapshot(step=step, snapshot=state)
    wait_until(lambda: step in [info.step for info in manager.snapshots], f"snapshot {step}")
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


class TestCounting:
    def test_as_many_losses_as_the_limit_are_survived_and_one_more_is_not(
        self, make_manager: MakeManager
    ) -> None:
        manager = make_manager(max_elastic_down_event_count=2)
        snapshot_of(manager, 0)
        for _ in range(2):
            down(manager, toy.data_loss())
        error = toy.data_loss()
        with pytest.raises(
            DownEventLimitError, match="max_elastic_down_event_count is 2"
        ) as caught:
            down(manager, error)
        assert caught.value.__cause__ is error
        assert [info.step for info in manager.snapshots] == [0]

    def test_retries_are_counted_for_each_event_by_itself(
        self, make_manager: MakeManager, events: list[Event]
    ) -> None:
        manager = make_manager(max_elastic_down_event_count=3, max_reshard_retry_count=2)
        snapshot_of(manager, 0)
        calls: list[int] = []

        def fails_twice(utils: ElasticUtils) -> tuple[State, int]:
            calls.append(utils.attempt)
            if utils.attempt < 2:
                raise toy.data_loss()
            return toy.handler(utils)

        for _ in range(3):
            down(manager, toy.data_loss(), fails_twice)
        assert calls == [0, 1, 2] * 3
        assert manager.down_event_count == 3
        assert [event.kind for event in events].count(EventKind.ATTEMPT_FAILED) == 6

    def test_a_handler_that_never_succeeds_is_called_once_and_as_often_again_as_allowed(
        self, make_manager: MakeManager
    ) -> None:
        manager = make_manager(max_reshard_retry_count=2)
        snapshot_of(manager, 0)
        calls: list[int] = []

        def fails(utils: ElasticUtils) -> None:
            calls.append(utils.attempt)
            raise toy.data_loss(2)

        with pytest.raises(RetryLimitError, match=r"called 3 times .*_retry_count is 2\)"):
            down(manager, toy.data_loss(), fails)
        assert calls == [0, 1, 2]
        assert [info.step for info in manager.snapshots] == [0]

    def test_retries_get_older_snapshots_newest_first(self, make_manager: MakeManager) -> None:
        manager = make_manager(snapshot_buffer_size=2)
        for step in (0, 2, 4):
            snapshot_of(manager, step)
        steps: list[int] = []

        def fails(utils: ElasticUtils) -> None:
            steps.append(utils.get_next_snapshot()[0])
            raise toy.data_loss()

        with pytest.raises(RetryLimitError):
            down(manager, toy.data_loss(), fails)
        assert steps == [4, 2, 4, 2]

    def test_a_slice_lost_in_the_handler_is_left_out_at_the_next_try(
        self, service: Service, make_manager: MakeManager
    ) -> None:
        manager = make_manager()
        snapshot_of(manager, 0)
        error = lose(service, manager, 0)

        def handler(utils: ElasticUtils) -> tuple[State, int]:
            restored = toy.handler(utils)
            if utils.attempt == 0:
                raise lose(service, manager, 2)
            return restored

        state, _ = down(manager, error, handler)
        assert manager.good_slice_indices == {1}
        assert manager.down_event_count == 1
        assert toy.count_of(state) == 0


class TestBadUse:
    def test_a_step_that_goes_back_is_refused(self, make_manager: MakeManager) -> None:
        manager = make_manager()
        snapshot_of(manager, 4)
        with pytest.raises(ValueError, match="step must not go back: it is 3 after 4"):
            manager.maybe_snapshot(step=3, snapshot=toy.new_state)
        assert [info.step for info in manager.snapshots] == [4]

    @pytest.mark.parametrize("step", [1.0, None, True, "3"])
    def test_a_step_must_be_an_integer(self, make_manager: MakeManager, step: Any) -> None:
        with pytest.raises(ValueError, match="step must be an integer"):
            make_manager().maybe_snapshot(step=step, snapshot={})

    def test_a_step_on_a_device_is_refused_because_reading_it_waits(
        self, make_manager: MakeManager
    ) -> None:
        manager = make_manager()
        step: Any = jax.numpy.int32(3)
        with pytest.raises(ValueError, match=r"such as int\(state.step\)"):
            manager.maybe_snapshot(step=step, snapshot={})
        manager.maybe_snapshot(step=int(np.int64(3)), snapshot={"x": 1})

    @pytest.mark.parametrize(
        ("snapshot", "complaint"),
        [
            (
                {"a": [np.zeros(2), "text"]},
                r"snapshot\['a'\]\[1\] is neither an array nor a number",
            ),
            ({"f": len}, r"snapshot\['f'\] is neither an array nor a number but builtin_function"),
            ({"o": np.array([None])}, r"snapshot\['o'\] is neither"),
            ({}, "the snapshot holds no arrays"),
        ],
    )
    def test_what_is_no_state_is_refused_and_the_last_one_is_kept(
        self, make_manager: MakeManager, snapshot: Any, complaint: str
    ) -> None:
        manager = make_manager()
        snapshot_of(manager, 0)
        with pytest.raises(SnapshotError, match=complaint):
            manager.maybe_snapshot(step=2, snapshot=snapshot)
        assert [info.step for info in manager.snapshots] == [0]

    def test_a_state_that_was_donated_is_refused(self, make_manager: MakeManager) -> None:
        manager = make_manager()
        state = snapshot_of(manager, 0)
        toy.update(state)
        with pytest.raises(SnapshotError, match=r"snapshot.* was donated or deleted already"):
            manager.maybe_snapshot(step=2, snapshot=state)

    def test_a_traced_state_is_refused(self, make_manager: MakeManager) -> None:
        manager = make_manager()

        @jax.jit
        def step(x: jax.Array) -> jax.Array:
            manager.maybe_snapshot(step=0, snapshot=x)
            return x

        with pytest.raises(SnapshotError, match="call maybe_snapshot outside of jit"):
            step(np.float32(1))

    def test_what_a_handler_raises_is_raised_with_a_word_on_the_snapshots(
        self, make_manager: MakeManager
    ) -> None:
        manager = make_manager()
        snapshot_of(manager, 0)
        bug = KeyError("optimizer")

        def handler(_: ElasticUtils) -> None:
            raise bug

        with pytest.raises(KeyError) as caught:
            down(manager, toy.data_loss(), handler)
        assert caught.value is bug
        assert bug.__notes__ == ["raised by the elastic handler; there are snapshots of steps [0]"]
        state, _ = down(manager, toy.data_loss())
        assert toy.count_of(state) == 0

    @pytest.mark.parametrize("nothing", [None, (), {}])
    def test_a_handler_that_returns_nothing_is_an_error(
        self, make_manager: MakeManager, nothing: Any
    ) -> None:
        manager = make_manager()
        snapshot_of(manager, 0)
        with pytest.raises(HandlerError, match="it must return what the loop goes on with"):
            down(manager, toy.data_loss(), lambda _: nothing)
        assert [info.step for info in manager.snapshots] == [0]

    def test_a_handler_that_hangs_is_interrupted_and_its_place_is_logged(
        self, make_manager: MakeManager, caplog: pytest.LogCaptureFixture
    ) -> None:
        manager = make_manager(handler_timeout_s=0.3)
        snapshot_of(manager, 0)

        def waits_for_ever(_: ElasticUtils) -> None:
            threading.Event().wait()

        with pytest.raises(HandlerTimeoutError, match=r"waits_for_ever has taken longer"):
            down(manager, toy.data_loss(), waits_for_ever)
        assert "in waits_for_ever" in caplog.text
        assert [info.step for info in manager.snapshots] == [0]

    def test_without_a_snapshot_the_handler_is_told_so(self, make_manager: MakeManager) -> None:
        manager = make_manager()
        with pytest.raises(NoSnapshotError, match="there is no snapshot"):
            down(manager, toy.data_loss())

    def test_an_interrupted_handler_leaves_everything_as_it_was(
        self, make_manager: MakeManager
    ) -> None:
        manager = make_manager()
        snapshot_of(manager, 0)

        def interrupted(_: ElasticUtils) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            down(manager, toy.data_loss(), interrupted)
        state, step = down(manager, toy.data_loss())
        assert (step, toy.count_of(state)) == (0, 0)


class TestWaiting:
    def test_too_few_slices_are_waited_for(
        self, service: Service, make_manager: MakeManager, events: list[Event]
    ) -> None:
        manager = make_manager(min_slices=3)
        snapshot_of(manager, 0)
        error = lose(service, manager, 1)
        back = threading.Timer(0.5, service.revive, (1,))
        back.start()
        state, _ = down(manager, error)
        back.join()
        assert manager.good_slice_indices == {0, 1, 2}
        waiting = [event for event in events if event.kind is EventKind.WAITING_FOR_SLICES]
        assert "slices [0, 2] answer, and min_slices is 3" in waiting[0].reason
        assert toy.count_of(state) == 0

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
        back = threading.Timer(0.5, service.revive, (1,))
        back.start()
        state, _ = down(manager, error)
        back.join()
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

    def test_a_bug_in_the_handler_is_raised_and_the_slices_are_those_before(
        self, service: Service, make_manager: MakeManager
    ) -> None:
        manager = make_manager()
        snapshot_of(manager, 0)
        state, step = down(manager, lose(service, manager, 1))
        service.revive(1)

        def handler(_: ElasticUtils) -> None:
            raise KeyError("mesh")

        with pytest.raises(KeyError, match="mesh"):
            self.up(manager, state, step + 1, handler)
        assert manager.good_slice_indices == {0, 2}
        assert os.environ["PATHWAYS_MIN_SLICES"] == "1"
