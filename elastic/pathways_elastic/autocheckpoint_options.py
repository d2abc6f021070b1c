# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""How autocheckpoints are made: arguments of ``connect()``, or variables of the environment."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

ENABLE_VARIABLE = "ENABLE_AUTOCHECKPOINT"
EXIT_VARIABLE = "EXIT_AFTER_AUTOCHECKPOINT"
TIMEOUT_VARIABLE = "AUTOCHECKPOINT_TIMEOUT_S"

DEFAULT_TIMEOUT_S = 300.0
"""What a platform waits for programs before it maintains a slice."""

_WORDS = {"true": True, "1": True, "false": False, "0": False, "": False}


@dataclass(frozen=True, slots=True)
class Options:
    """How autocheckpoints are made.

    Attributes:
        enabled: Whether they are.
        exit_after: Whether the program ends after one, with ``EXIT_SAVED`` or ``EXIT_NOT_SAVED``.
        timeout_s: What one may take, from the request on.

    Raises:
        ValueError: ``timeout_s`` is out of its range.
    """

    enabled: bool = False
    exit_after: bool = False
    timeout_s: float = DEFAULT_TIMEOUT_S

    def __post_init__(self) -> None:
        if not 0 < self.timeout_s < math.inf:
            raise ValueError(
                f"autocheckpoint_timeout_s must be > 0 and finite, got {self.timeout_s!r}"
            )

    @classmethod
    def of(
        cls,
        environ: Mapping[str, str],
        enabled: bool | None = None,
        exit_after: bool | None = None,
        timeout_s: float | None = None,
    ) -> "Options":
        """What is given, and for the rest what the environment says.

        Raises:
            ValueError: A variable has a value that it can't have.
        """
        if enabled is None:
            enabled = _flag(environ, ENABLE_VARIABLE)
        if exit_after is None:
            exit_after = _flag(environ, EXIT_VARIABLE)
        if timeout_s is None:
            text = environ.get(TIMEOUT_VARIABLE, "").strip() or str(DEFAULT_TIMEOUT_S)
            try:
                timeout_s = float(text)
            except ValueError:
                raise ValueError(
                    f"{TIMEOUT_VARIABLE} is {text!r}; valid: seconds, such as 300"
                ) from None
        return cls(enabled, exit_after, timeout_s)


def _flag(environ: Mapping[str, str], name: str) -> bool:
    text = environ.get(name, "").strip()
    if (value := _WORDS.get(text.lower())) is None:
        raise ValueError(f"{name} is {text!r}; valid: true or false")
    return value
