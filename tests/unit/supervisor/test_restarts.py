# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""When a command is started again."""

import pytest

from pathways_slurm.foreground import Ended
from pathways_slurm.restarts import describe, failures_at_once, pause_s, worth_restarting


@pytest.mark.parametrize(
    ("ended", "again"),
    [
        (Ended(0, None, asked=False), False),
        (Ended(1, None, asked=False), True),
        (Ended(137, 9, asked=False), True),
        (Ended(1, None, asked=True), False),
        (Ended(143, 15, asked=True), False),
        (Ended(126, None, asked=False), False),
        (Ended(127, None, asked=False), False),
    ],
)
def test_what_failed_by_itself_is_worth_another_try(ended: Ended, again: bool) -> None:
    assert worth_restarting(ended) is again


def test_the_pause_grows_with_failures_at_once_and_has_a_limit() -> None:
    failures, pauses = 0, []
    for ran_s in (60.0, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 10.0, 9.9):
        failures = failures_at_once(failures, ran_s)
        pauses.append(pause_s(failures))
    assert pauses == [0, 1, 2, 4, 8, 16, 30, 30, 0, 1]


def test_an_end_is_told_in_words() -> None:
    assert describe(Ended(3, None, asked=False)) == "command exited with 3"
    assert describe(Ended(137, 9, asked=False)) == "command was ended by signal 9 (SIGKILL)"
