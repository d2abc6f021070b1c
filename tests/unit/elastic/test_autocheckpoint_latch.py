# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""When a step is saved on request, and what follows."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pathways_elastic.autocheckpoint_latch import (
    END_WITHIN_S,
    EXIT_NOT_SAVED,
    EXIT_SAVED,
    Latch,
    Phase,
)

STAYS = Latch(timeout_s=300.0, exit_after=False)
ENDS = Latch(timeout_s=300.0, exit_after=True)


def test_nothing_is_saved_before_somebody_asks() -> None:
    assert not STAYS.saves(1)
    assert not STAYS.overdue(1e9)


def test_the_next_step_is_saved_whichever_it_is_and_then_no_other() -> None:
    asked = STAYS.asked("SIGTERM", 100.0)
    assert asked.saves(7)
    assert asked.saves(8)
    saving = asked.saving(8)
    assert saving.saves(8)
    assert not saving.saves(9)
    over = saving.committed(110.0)
    # A program asks once more whether this step was the one, after its save.
    assert over.saves(8)
    assert not over.saves(9)
    assert over.phase is Phase.QUIET


def test_the_step_is_kept_from_its_save_to_the_next_request() -> None:
    assert not STAYS.keeps(8)
    asked = STAYS.asked("SIGTERM", 100.0)
    assert not asked.keeps(8)
    saving = asked.saving(8)
    over = saving.committed(110.0)
    assert saving.keeps(8)
    assert over.keeps(8)
    assert not over.keeps(9)
    assert not over.asked("SIGTERM", 200.0).keeps(8)
    assert not saving.failed().keeps(8)


def test_who_asks_again_neither_hurries_nor_delays_it() -> None:
    asked = STAYS.asked("SIGTERM", 100.0).asked("SIGTERM", 150.0)
    assert (asked.deadline, asked.reasons) == (400.0, ("SIGTERM", "SIGTERM"))
    saving = asked.saving(3).asked("slice 1 goes", 160.0)
    assert saving.phase is Phase.SAVING
    assert saving.committed(170.0).phase is Phase.QUIET


def test_who_asks_after_it_is_over_gets_another_one() -> None:
    again = STAYS.asked("a", 0.0).saving(3).committed(1.0).asked("b", 500.0)
    assert (again.phase, again.deadline, again.reasons) == (Phase.ASKED, 800.0, ("b",))
    assert again.saves(4)


def test_a_save_that_failed_is_tried_at_the_next_step_within_the_same_time() -> None:
    failed = STAYS.asked("SIGTERM", 100.0).saving(3).failed()
    assert failed.saves(4)
    assert failed.deadline == 400.0


def test_an_attempt_has_its_time_and_no_more() -> None:
    asked = STAYS.asked("SIGTERM", 100.0)
    assert not asked.overdue(399.9)
    assert asked.overdue(400.0)
    assert asked.given_up(399.9) == asked
    given_up = asked.saving(3).given_up(400.0)
    assert given_up.phase is Phase.QUIET
    assert not given_up.saves(3)
    assert given_up.status is None


@pytest.mark.parametrize(
    ("finish", "status"), [("committed", EXIT_SAVED), ("given_up", EXIT_NOT_SAVED)]
)
def test_a_program_that_is_to_end_does_so_with_a_status_of_its_own(
    finish: str, status: int
) -> None:
    over = getattr(ENDS.asked("SIGTERM", 0.0).saving(3), finish)(300.0)
    assert (over.phase, over.status) == (Phase.ENDING, status)
    # However many signals come now, and even if its cleaning up hangs.
    assert over.asked("SIGTERM", 301.0).deadline == 300.0 + END_WITHIN_S
    assert over.overdue(300.0 + END_WITHIN_S)


def test_a_commit_that_comes_too_late_changes_nothing() -> None:
    given_up = ENDS.asked("SIGTERM", 0.0).saving(3).given_up(300.0)
    assert given_up.committed(301.0) == given_up
    assert given_up.failed() == given_up
    assert given_up.given_up(302.0) == given_up


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["asked", "saving", "failed", "committed", "given_up"]),
        st.floats(0, 1000),
    ),
    max_size=20,
)


@given(EVENTS, st.booleans())
def test_whatever_comes_in_whatever_order_no_request_is_lost_or_kept_for_ever(
    events: list[tuple[str, float]], exit_after: bool
) -> None:
    latch = Latch(300.0, exit_after)
    now = 0.0
    for step, (event, passed) in enumerate(events):
        now += passed
        before = latch
        match event:
            case "asked":
                latch = latch.asked("x", now)
                assert latch.phase is not Phase.QUIET
            case "saving":
                latch = latch.saving(step)
            case "failed":
                latch = latch.failed()
                assert (latch.phase is Phase.QUIET) == (before.phase is Phase.QUIET)
            case "committed":
                latch = latch.committed(now)
            case "given_up":
                latch = latch.given_up(now)
        if before.phase is Phase.ENDING:
            assert (latch.phase, latch.status) == (Phase.ENDING, before.status)
        assert (latch.deadline == math.inf) == (latch.phase is Phase.QUIET)
        assert (latch.status is None) == (latch.phase is not Phase.ENDING)
