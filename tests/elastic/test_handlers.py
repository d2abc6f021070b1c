# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The manager and its handlers: what is counted, tried again, and refused."""

import threading
from typing import Any

import jax
import numpy as np
import pytest
from tests.elastic import toy
from tests.elastic.driving import MakeManager, down, lose, snapshot_of
from tests.elastic.toy import State

from elastic_service import Service
from pathways_elastic.errors import (
    DownEventLimitError,
    HandlerError,
    HandlerTimeoutError,
    NoSnapshotError,
    RetryLimitError,
    SnapshotError,
)
from pathways_elastic.manager import ElasticUtils, Event, EventKind


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
