# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Which faults come when. Pure: it depends on the seed and the kinds of faults only."""

import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

# Some faults come on the heels of others.
_BURST = 0.2
_BURST_S = (0.0, 0.5)
_DELAY_S = (0.5, 5.5)


@dataclass(frozen=True)
class Entry:
    """One fault of the schedule.

    Attributes:
        number: From 1.
        delay_s: After the fault before.
        order: Kinds by preference; the first whose precondition holds is done.
        dice: Decides everything else about the fault. Its own, so that what one fault draws does
            not change the others.
    """

    number: int
    delay_s: float
    order: tuple[str, ...]
    dice: random.Random


def schedule(seed: int, faults: int, weights: Mapping[str, float]) -> Iterator[Entry]:
    """The faults that ``seed`` stands for; each kind comes as often as its weight says."""
    for number in range(1, faults + 1):
        dice = random.Random(f"{seed}/{number}")
        burst = dice.random() < _BURST
        delay = dice.uniform(*(_BURST_S if burst else _DELAY_S))
        # Smallest first: a random order in which each comes first as often as its weight says.
        rank = {kind: -math.log(1.0 - dice.random()) / weights[kind] for kind in sorted(weights)}
        yield Entry(number, delay, tuple(sorted(rank, key=lambda kind: rank[kind])), dice)
