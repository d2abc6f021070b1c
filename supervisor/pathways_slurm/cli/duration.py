# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Durations as people write and read them: 90s, 5m, 1h30m."""

import math
import re

import click

_DURATION = re.compile(r"(?:([0-9]{1,6})h)?(?:([0-9]{1,6})m)?(?:([0-9]{1,6})s?)?")


def parse(text: str) -> float:
    """Seconds of a duration; a number alone is one of seconds. Raises ValueError if it is none."""
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None or not any(match.groups()):
        raise ValueError(f"{text!r} is not a duration such as 90s, 5m or 1h30m")
    hours, minutes, seconds = (int(group or 0) for group in match.groups())
    return float(hours * 3600 + minutes * 60 + seconds)


def words(seconds: float) -> str:
    """A time for people: 0s, 42s, 4m08s, 1h30m."""
    minutes, rest = divmod(max(0, math.ceil(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02}m"
    return f"{minutes}m{rest:02}s" if minutes else f"{rest}s"


class _Duration(click.ParamType[float]):
    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if isinstance(value, float):
            return value
        try:
            return parse(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


DURATION = _Duration()
