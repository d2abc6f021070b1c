# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Durations as people write and read them."""

import pytest

from pathways_slurm.cli import duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("5m", 300),
        ("1h", 3600),
        ("1h30m", 5400),
        ("2m30", 150),
        (" 5M ", 300),
        ("45", 45),
        ("0", 0),
        ("1h0m1s", 3601),
    ],
)
def test_what_people_write(text: str, seconds: float) -> None:
    assert duration.parse(text) == seconds


@pytest.mark.parametrize("text", ["", " ", "m", "5 m", "-5m", "5m1h", "1.5h", "5d", "inf", "1e3"])
def test_what_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration such as 90s, 5m or 1h30m"):
        duration.parse(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-3, "0s"), (0, "0s"), (41.2, "42s"), (248, "4m08s"), (3600, "1h00m"), (5430, "1h30m")],
)
def test_what_people_read(seconds: float, text: str) -> None:
    assert duration.words(seconds) == text
