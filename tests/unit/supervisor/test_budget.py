# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Budgets of retries."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pathways_slurm.budget import Budget

BUDGET = Budget(3, 100.0)
TIMES = st.lists(st.floats(0, 1e6), max_size=8).map(lambda times: tuple(sorted(times)))


def test_only_what_is_within_the_window_counts() -> None:
    spent = (0.0, 50.0, 99.0)
    assert BUDGET.left(spent, 99.0) == 0
    assert BUDGET.left(spent, 100.0) == 1
    assert BUDGET.left(spent, 1000.0) == 3
    assert BUDGET.describe(spent, 120.0) == "2 of 3 used in the last 100 s"


@pytest.mark.parametrize(("used", "pause"), [(0, 0.0), (1, 1.0), (2, 2.0), (3, 4.0), (9, 60.0)])
def test_each_retry_waits_twice_as_long_up_to_a_minute(used: int, pause: float) -> None:
    spent = tuple(float(second) for second in range(used))
    now = spent[-1] if spent else 0.0
    assert Budget(10, 1e6).backoff_left(spent, now) == pause


@given(TIMES, st.floats(0, 1e6))
def test_a_clock_set_back_neither_refills_a_budget_nor_stretches_a_wait(
    spent: tuple[float, ...], now: float
) -> None:
    future = tuple(t for t in spent if t > now)
    assert BUDGET.left(spent, now) <= max(0, BUDGET.limit - len(future))
    assert 0.0 <= BUDGET.backoff_left(spent, now) <= 60.0
