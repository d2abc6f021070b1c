# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Reading values given as text, by flag or by variable, so that every fault is found at once."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

MAX_PORT = 65535


@dataclass(slots=True)
class Reader:
    """Takes typed values out of named texts and collects what is wrong with them.

    A faulty value is replaced by a placeholder so that reading goes on; whoever reads must look at
    `faults` before it uses anything.

    Attributes:
        values: Text by name.
        faults: One sentence per fault, beginning with the name; shared with other readers.
        prefix: Put before names in faults, such as ``--``.
    """

    values: Mapping[str, str]
    faults: list[str] = field(default_factory=list)
    prefix: str = ""

    def required[T](self, name: str, parse: Callable[[str], T], placeholder: T, hint: str) -> T:
        """The value of `name`; missing or empty is a fault that ends with `hint`."""
        if name not in self.values:
            self.fault(name, f"missing; {hint}")
            return placeholder
        if not self.values[name]:
            self.fault(name, f"empty; {hint}")
            return placeholder
        return self.optional(name, parse, placeholder)

    def optional[T](self, name: str, parse: Callable[[str], T], default: T) -> T:
        """The value of `name`, or `default` if it is missing or faulty."""
        text = self.values.get(name)
        if text is None:
            return default
        try:
            return parse(text)
        except ValueError as error:
            self.fault(name, f"{text!r} is not valid: {error}")
            return default

    def fault(self, name: str, sentence: str) -> None:
        self.faults.append(f"{self.prefix}{name}: {sentence}")


def port(text: str) -> int:
    """A TCP port.

    Raises:
        ValueError: Not an integer in 1 .. 65535.
    """
    return integer(text, minimum=1, maximum=MAX_PORT, what="a port")


def integer(text: str, *, minimum: int, maximum: int | None = None, what: str = "") -> int:
    """An integer within bounds.

    Raises:
        ValueError: Not an integer, or outside the bounds.
    """
    bounds = f">= {minimum}" if maximum is None else f"from {minimum} to {maximum}"
    expected = f"expected {what or 'an integer'}, {bounds}"
    try:
        value = int(text)
    except ValueError:
        raise ValueError(expected) from None
    if value < minimum or (maximum is not None and value > maximum):
        raise ValueError(expected)
    return value


def seconds(text: str) -> float:
    """A duration in seconds.

    Raises:
        ValueError: Not a finite number greater than 0.
    """
    expected = "expected a number of seconds greater than 0, such as 10 or 0.5"
    try:
        value = float(text)
    except ValueError:
        raise ValueError(expected) from None
    if not math.isfinite(value) or value <= 0:
        raise ValueError(expected)
    return value


def boolean(text: str) -> bool:
    """True or false.

    Raises:
        ValueError: Another word.
    """
    word = text.lower()
    if word not in ("true", "false"):
        raise ValueError("expected true or false")
    return word == "true"


def comma_list(text: str) -> tuple[str, ...]:
    """Items separated by commas.

    Raises:
        ValueError: An item is empty.
    """
    items = tuple(item.strip() for item in text.split(","))
    if not all(items):
        raise ValueError("expected a comma list without empty items")
    return items


def report(command: str, faults: list[str]) -> str:
    """The message that a command prints before it exits with code 2."""
    count = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
    return "\n".join([f"{command}: cannot start, {count}:", *(f"  {fault}" for fault in faults)])
