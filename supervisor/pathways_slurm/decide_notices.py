# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What programs and the resource manager must be told of a plan. Pure."""

from collections.abc import Iterator
from dataclasses import replace

from pathways_slurm.decide_departure import LEFT_BY_PROGRAMS
from pathways_slurm.model import Memory, Observation
from pathways_slurm.notices import Back, Going, Notices, Shutdown
from pathways_slurm.plan import Action, Announce, Command, Forget, Plan
from pathways_slurm.runtime_files import Orders, SliceOrder
from pathways_slurm.states import ServicePhase, SliceState

_ENDING = (ServicePhase.STOPPING, ServicePhase.STOPPED, ServicePhase.FAILED)


def inform(plan: Plan, seen: Observation) -> Plan:
    """The plan with what is to be told first, if that is not what is read already."""
    memory = _announced(plan.memory)
    assert memory.notices is not None  # just made
    actions: list[Action] = []
    if (orders := _orders(memory)) != seen.orders:
        actions.append(Command(orders))
    if memory.notices != seen.announced:
        actions.append(Announce(memory.notices))
    if settled := tuple(sorted(_settled(memory, seen.acknowledged))):
        actions.append(Forget(settled))
    return replace(plan, memory=memory, actions=(*actions, *plan.actions))


def _announced(memory: Memory) -> Memory:
    before = memory.notices or Notices(memory.run_id)
    shutdown = None
    if memory.phase in _ENDING:
        shutdown = before.shutdown or Shutdown(memory.reason, memory.since)
    notices = before.changed_to(_going(memory), _back(memory), shutdown)
    return replace(memory, notices=notices)


def _going(memory: Memory) -> Iterator[Going]:
    for index, kept in sorted(memory.slices.items()):
        if kept.up and (going := kept.going) is not None:
            yield Going(index, going.incarnation, going.deadline, going.reason)


def _back(memory: Memory) -> Iterator[Back]:
    for index, kept in sorted(memory.slices.items()):
        if kept.up and kept.back_since:
            yield Back(index, kept.incarnation, kept.back_since)


def _orders(memory: Memory) -> Orders:
    slices = sorted(memory.slices.items())
    return Orders(
        shutdown=memory.reason if memory.phase in _ENDING else "",
        released=tuple(
            SliceOrder(index, kept.incarnation, LEFT_BY_PROGRAMS)
            for index, kept in slices
            if kept.up and kept.going and kept.going.acknowledged
        ),
        # Whoever waits for their return would wait for ever.
        abandoned=tuple(
            SliceOrder(index, kept.incarnation, f"{kept.state.value.lower()}: {kept.reason}")
            for index, kept in slices
            if kept.state in (SliceState.CANCELLED, SliceState.FAILED) and kept.incarnation
        ),
    )


def _settled(memory: Memory, answers: frozenset[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Those about runs that are over."""
    for index, incarnation in answers:
        kept = memory.slices.get(index)
        if kept is None or incarnation > kept.incarnation:
            continue
        if incarnation < kept.incarnation or not kept.up:
            yield index, incarnation
