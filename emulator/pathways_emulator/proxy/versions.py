# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Agreeing with a client on a protocol. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Range:
    """Versions from ``low`` to ``high``, both included."""

    low: int
    high: int

    def __str__(self) -> str:
        return f"{self.low} to {self.high}"


# What the handlers were written for, and the clients of jaxlib 0.10.2 to 0.12.0.1 speak: those have
# protocols 16 to 25. With a serialization version below 3, compiling fails.
PROTOCOLS = Range(16, 25)
SERDES = Range(3, 6)


def choose(what: str, ours: Range, theirs: Range) -> int:
    """The newest version that both sides have.

    A client that is offered a version outside its range ends its process, so there must be one.

    Raises:
        ValueError: They have none in common; the message says what each side has.
    """
    newest = min(ours.high, theirs.high)
    if newest < max(ours.low, theirs.low):
        raise ValueError(
            f"{what} versions: the client has {theirs}, this server {ours}; "
            "use a client with jaxlib 0.10.2 to 0.12"
        )
    return newest
