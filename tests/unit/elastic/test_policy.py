# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What a manager decides, without slices."""

from typing import Any

import pytest

from pathways_elastic import policy
from pathways_elastic.errors import DownEventLimitError
from pathways_elastic.policy import DownEvents, Options

GOOD: dict[str, Any] = {
    "snapshot_period": 10,
    "snapshot_buffer_size": 1,
    "reshard_check_period": 5,
    "max_elastic_down_event_count": 10,
    "max_reshard_retry_count": 3,
    "min_slices": 1,
    "grace_period_s": 0.0,
    "slices_timeout_s": 60.0,
    "poll_interval_s": 1.0,
    "probe_timeout_s": 10.0,
    "handler_timeout_s": 60.0,
}


class TestOptions:
    def test_what_the_documentation_shows_is_valid(self) -> None:
        assert Options(**GOOD).snapshot_period == 10

    @pytest.mark.parametrize(
        ("name", "value", "complaint"),
        [
            ("snapshot_period", 0, "snapshot_period must be an integer >= 1, got 0"),
            ("snapshot_period", 2.5, "snapshot_period must be an integer >= 1, got 2.5"),
            ("snapshot_period", True, "snapshot_period must be an integer >= 1, got True"),
            ("snapshot_buffer_size", 0, "snapshot_buffer_size must be an integer >= 1, got 0"),
            ("reshard_check_period", -1, "reshard_check_period must be an integer >= 1, got -1"),
            ("max_reshard_retry_count", -1, "max_reshard_retry_count must be an integer >= 0"),
            ("min_slices", 0, "min_slices must be an integer >= 1, got 0"),
            ("grace_period_s", -1.0, "grace_period_s must be >= 0 and finite, got -1.0"),
            ("handler_timeout_s", 0.0, "handler_timeout_s must be > 0 and finite, got 0.0"),
            ("probe_timeout_s", float("nan"), "probe_timeout_s must be > 0 and finite, got nan"),
        ],
    )
    def test_a_value_out_of_range_is_refused(self, name: str, value: Any, complaint: str) -> None:
        with pytest.raises(ValueError, match=complaint):
            Options(**{**GOOD, name: value})

    def test_all_faults_are_told_at_once(self) -> None:
        with pytest.raises(ValueError, match="snapshot_period") as caught:
            Options(**{**GOOD, "snapshot_period": 0, "poll_interval_s": 0.0})
        assert "poll_interval_s" in str(caught.value)

    def test_no_loss_and_no_retry_may_be_allowed(self) -> None:
        options = Options(
            **{**GOOD, "max_elastic_down_event_count": 0, "max_reshard_retry_count": 0}
        )
        assert options.max_elastic_down_event_count == 0


class TestMinSlices:
    def test_it_is_what_cluster_env_says(self) -> None:
        assert policy.min_slices_of({"PATHWAYS_MIN_SLICES": "2"}) == 2

    def test_it_is_one_without_a_service(self) -> None:
        assert policy.min_slices_of({}) == 1

    @pytest.mark.parametrize("text", ["", "0", "-1", "two", "1.5", "٣"])
    def test_anything_but_a_number_is_refused(self, text: str) -> None:
        with pytest.raises(ValueError, match="PATHWAYS_MIN_SLICES must be a whole number from 1"):
            policy.min_slices_of({"PATHWAYS_MIN_SLICES": text})


class TestWhenToTakeASnapshot:
    def test_steps_that_the_period_divides_have_one(self) -> None:
        due = [step for step in range(1, 31) if policy.snapshot_is_due(step, 10, latest=0)]
        assert due == [10, 20, 30]

    def test_the_first_step_has_one_whatever_its_number(self) -> None:
        assert policy.snapshot_is_due(17, 10, latest=None)

    def test_a_step_that_has_one_gets_no_other(self) -> None:
        assert not policy.snapshot_is_due(20, 10, latest=20)


class TestWhatIsKept:
    def test_the_newest_are(self) -> None:
        assert policy.with_new([20, 10], 30, size=2) == [30, 20]

    def test_one_of_the_same_step_is_replaced(self) -> None:
        assert policy.with_new([20, 10], 20, size=3) == [20, 10]

    def test_those_of_a_future_that_was_given_up_are_not(self) -> None:
        assert policy.with_new([30, 20, 10], 15, size=3) == [15, 10]


class TestWhichSnapshotIsNext:
    def test_the_newest_is_first_and_then_the_older_ones(self) -> None:
        handed: list[int] = []
        for _ in range(3):
            step = policy.next_to_hand_out([30, 20, 10], handed)
            assert step is not None
            handed.append(step)
        assert handed == [30, 20, 10]

    def test_when_all_were_tried_the_newest_is_next_again(self) -> None:
        assert policy.next_to_hand_out([30, 20], [30, 20]) == 30
        assert policy.next_to_hand_out([30], [30, 30]) == 30

    def test_one_that_was_lost_meanwhile_is_left_out(self) -> None:
        assert policy.next_to_hand_out([20], [30]) == 20

    def test_without_snapshots_there_is_none(self) -> None:
        assert policy.next_to_hand_out([], [30]) is None


class TestDownEvents:
    def test_as_many_as_the_limit_says_are_survived(self) -> None:
        events = DownEvents(limit=2)
        events = events.one_more().one_more()
        assert events.count == 2

    def test_one_more_is_refused_with_the_limit_in_the_message(self) -> None:
        events = DownEvents(limit=2).one_more().one_more()
        with pytest.raises(DownEventLimitError) as caught:
            events.one_more()
        assert "for the 3rd time" in str(caught.value)
        assert "max_elastic_down_event_count is 2" in str(caught.value)

    @pytest.mark.parametrize(
        ("limit", "word"), [(0, "1st"), (1, "2nd"), (3, "4th"), (10, "11th"), (20, "21st")]
    )
    def test_the_message_counts_as_people_do(self, limit: int, word: str) -> None:
        with pytest.raises(DownEventLimitError, match=f"for the {word} time"):
            DownEvents(limit, limit).one_more()
