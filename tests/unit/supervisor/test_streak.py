# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""When something was so long enough to act on it."""

import pytest

from pathways_slurm.streak import Streak


def _of_looks_at(*times: float) -> Streak:
    streak = Streak()
    for now in times:
        streak = streak.extended(now, longest_gap_s=20.0)
    return streak


@pytest.mark.parametrize(
    ("times", "reached"),
    [
        ((), False),
        ((100.0,), False),
        ((100.0, 110.0), False),  # two looks may be two moments
        ((100.0, 105.0, 109.9), False),
        ((100.0, 105.0, 110.0), True),
        ((100.0, 100.5, 130.0, 135.0, 139.0), False),  # nobody looked for half a minute
        ((100.0, 105.0, 50.0), False),  # the clock was set back
        ((100.0, 105.0, 50.0, 55.0, 60.0), True),
    ],
)
def test_it_takes_time_and_three_looks_in_a_row(times: tuple[float, ...], reached: bool) -> None:
    assert _of_looks_at(*times).reached(10.0) is reached


def test_it_lasts_from_the_first_look_to_the_last() -> None:
    assert _of_looks_at(100.0, 105.0, 112.0).lasted_s == 12.0
