# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Reading values given as text, by flag or by variable, so that every fault is found at once."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

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


def seconds_or_zero(text: str) -> float:
    """A duration in seconds that may be 0.

    Raises:
        ValueError: Not a finite number from 0.
    """
    expected = "expected a number of seconds from 0, such as 25"
    try:
        value = float(text)
    except ValueError:
        raise ValueError(expected) from None
    if not math.isfinite(value) or value < 0:
        raise ValueError(expected)
    return value


def file_to_write(text: str) -> Path:
    """The absolute path of a file, there or not, in a directory that is there.

    Raises:
        ValueError: Not absolute, no such directory, or a directory itself.
    """
    path = Path(text)
    if not path.is_absolute():
        raise ValueError("expected an absolute path")
    if path.is_dir():
        raise ValueError("expected a file, but it is a directory")
    if not path.parent.is_dir():
        raise ValueError(f"expected a file in a directory that exists; {path.parent} does not")
    return path


def choice[T: str](text: str, valid: tuple[T, ...]) -> T:
    """One of the words of `valid`.

    Raises:
        ValueError: Another word.
    """
    for word in valid:
        if text == word:
            return word
    raise ValueError(f"expected {' or '.join(valid)}")


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
