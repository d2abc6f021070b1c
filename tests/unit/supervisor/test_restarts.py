# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""When a command is started again."""

import pytest

from pathways_slurm.foreground import Ended
from pathways_slurm.restarts import Failures, describe, failed, pause_s, worth_restarting

FAILED = Ended(1, None, asked=False)
SAVED = Ended(75, None, asked=False)
HOUR_S = 3600.0


@pytest.mark.parametrize(
    ("ended", "again"),
    [
        (Ended(0, None, asked=False), False),
        (Ended(1, None, asked=False), True),
        (Ended(137, 9, asked=False), True),
        (SAVED, True),
        (Ended(75, None, asked=True), False),
        (Ended(1, None, asked=True), False),
        (Ended(143, 15, asked=True), False),
        (Ended(126, None, asked=False), False),
        (Ended(127, None, asked=False), False),
    ],
)
def test_what_failed_by_itself_is_worth_another_try(ended: Ended, again: bool) -> None:
    assert worth_restarting(ended) is again


def counted(*runs: tuple[Ended, float]) -> list[int]:
    """How many failures count after each of the runs, of which each is an end and seconds."""
    failures, counts = Failures(), []
    for ended, ran_s in runs:
        failures = failures.after(ended, ran_s)
        counts.append(failures.counted)
    return counts


def test_a_command_that_has_saved_its_state_has_not_failed() -> None:
    assert counted((FAILED, 60), (SAVED, 60), (SAVED, 10), (SAVED, HOUR_S), (FAILED, 60)) == [
        *(1, 1, 1, 1),
        2,
    ]
    assert not failed(SAVED, 10)
    assert failed(FAILED, 10)


def test_a_command_that_asks_at_once_for_another_run_has_failed() -> None:
    assert counted(*[(SAVED, 9.9)] * 4) == [1, 2, 3, 4]
    assert failed(SAVED, 9.9)


def test_after_a_long_run_failures_are_counted_anew() -> None:
    assert counted(*[(FAILED, HOUR_S)] * 3, (FAILED, 2 * HOUR_S), (FAILED, 1)) == [1, 2, 3, 1, 2]
    assert counted((FAILED, 1), (FAILED, 1), (SAVED, 50 * HOUR_S), (FAILED, 1)) == [1, 2, 0, 1]


@pytest.mark.parametrize("ended", [FAILED, SAVED])
def test_the_pause_grows_with_runs_that_are_over_at_once_and_has_a_limit(ended: Ended) -> None:
    failures, pauses = Failures(), []
    for ran_s in (60.0, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 10.0, 9.9):
        failures = failures.after(ended, ran_s)
        pauses.append(pause_s(failures.at_once))
    assert pauses == [0, 1, 2, 4, 8, 16, 30, 30, 0, 1]
    assert pause_s(100_000) == 30


def test_an_end_is_told_in_words() -> None:
    assert describe(Ended(3, None, asked=False)) == "command exited with 3"
    assert describe(Ended(137, 9, asked=False)) == "command was ended by signal 9 (SIGKILL)"
