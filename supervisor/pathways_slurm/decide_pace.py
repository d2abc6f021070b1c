# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""How soon to look again: soon after a change, and less often the longer nothing comes of it. Pure.

A look costs the scheduler one request. Slices that are ready, or down for good, are looked at every
``tick_s`` seconds and no oftener. One that is on its way is looked at every half second at first;
then after a fifth of the time that it has been as it is. With the 5 s that are the default for
Slurm, that makes at most 25 looks in the minute after a change and 12 in any other; 120 a minute
would take something that changes all the time.
"""

from collections.abc import Iterable, Iterator

from pathways_slurm.model import Component, Memory, Rules
from pathways_slurm.states import ServicePhase, SliceState

SHORTEST_S = 0.5
"""Between two looks."""

_SHARE = 0.2

# The others stay as they are until something happens to them.
_ON_THEIR_WAY = frozenset(
    {
        SliceState.PENDING,
        SliceState.STARTING,
        SliceState.UNREACHABLE,
        SliceState.ENDING,
        SliceState.UNKNOWN,
    }
)


def look_again_s(rules: Rules, memory: Memory, answering: Iterable[Component], now: float) -> float:
    """Seconds until the next look, at most ``rules.tick_s``.

    Args:
        rules: Limits.
        memory: With what was concluded from this look.
        answering: Components that answered at it.
        now: Unix time in seconds.
    """
    changes = [*_of_slices(memory), *_of_components(memory, frozenset(answering))]
    # A change in the future is that of a clock that was set back.
    ages = [max(0.0, now - at) for at in changes]
    return min([rules.tick_s, *(max(SHORTEST_S, _SHARE * age) for age in ages)])


def _of_slices(memory: Memory) -> Iterator[float]:
    """Of each slice that is on its way, the time of the last step."""
    for kept in memory.slices.values():
        if kept.state in _ON_THEIR_WAY:
            yield max([kept.since, *kept.failures[-1:]])


def _of_components(memory: Memory, answering: frozenset[Component]) -> Iterator[float]:
    """Of each component that does not answer, the same."""
    for component in Component:
        if component not in answering:
            kept = memory.component(component)
            began = memory.since if memory.phase is ServicePhase.STARTING else 0.0
            # A proxy may have waited for the first slice.
            joined = [s.since for s in memory.slices.values() if s.state is SliceState.READY]
            yield max([began, kept.silence.since, *kept.restarts[-1:], *joined])
