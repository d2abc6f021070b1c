# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a user's settings, in words that say how to put it right."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong.

    Attributes:
        variable: Environment variable to change.
        value: As it was seen; None if it is not set.
        problem: What is wrong with it, as the rest of a sentence ("is not a whole number").
        valid: What would be right.
        default: What applies while it is not set; None if it must be set.
    """

    variable: str
    value: str | None
    problem: str
    valid: str
    default: str | None

    def __str__(self) -> str:
        seen = self.variable if self.value is None else f"{self.variable}={self.value!r}"
        default = "none, it must be set" if self.default is None else self.default
        return f"{seen} {self.problem}. Valid: {self.valid}. Default: {default}."


class SettingsError(Exception):
    """The settings can't be used; ``faults`` holds everything that is wrong with them."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(map(str, self.faults)))
