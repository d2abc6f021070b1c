# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""How a service ends: say so, withdraw the address, cancel the array, end RM and proxy. Pure."""

from dataclasses import replace

from pathways_slurm.events import Reason
from pathways_slurm.model import Component, Memory, Observation, SliceMemory
from pathways_slurm.plan import Action, Cancel, Note, Plan, StopComponent, Withdraw
from pathways_slurm.states import ServicePhase, SliceState

# Ending everything must not take longer; what is left then ends by lease.
STOP_DEADLINE_S = 45.0
# What was told to end and has not by then is killed: longer than any grace that it was given.
KILL_AFTER_S = 20.0
# By then the resource manager has told its workers; nobody else needs to be waited for.
ANNOUNCE_S = 2.0
# While ending, the next look comes soon: nothing else is going on.
_LOOK_AGAIN_S = 0.2

EXIT_STOPPED = 0
EXIT_FAILED = 1


def begin_stop(memory: Memory, reason: str, exit_code: int, now: float) -> Memory:
    """From now on the service only ends."""
    return replace(
        memory, phase=ServicePhase.STOPPING, since=now, reason=reason, exit_code=exit_code
    )


def decide_stop(memory: Memory, seen: Observation, now: float) -> Plan:
    """What is left to end; the plan carries an exit code once nothing is, or time is up."""
    actions: list[Action] = []
    left: list[str] = []
    # A task that is cancelled looks like a slice that goes, whose data is to be saved; unless the
    # resource manager knows that it is the service that ends.
    announcing = _announces(memory, seen, now)
    if seen.published:
        actions.append(Withdraw())
        left.append("cluster.env")
    if seen.tasks is None:
        left.append(f"the array (the scheduler does not answer: {seen.stale_reason})")
    elif live := tuple(task.id for task in seen.tasks if not task.state.ended):
        if not announcing:
            actions.append(Cancel(live))
        left.append(f"array tasks {', '.join(live)}")
    for component in (Component.PROXY, Component.RM):
        if seen.components[component].alive:
            if not (announcing and component is Component.RM):
                force = now - memory.since >= KILL_AFTER_S
                actions.append(StopComponent(component, force))
            left.append(f"the {component.label}")
    plan = Plan(tuple(actions), (), memory, _LOOK_AGAIN_S)
    if not left:
        return _finish(plan, memory, now)
    if now - memory.since >= STOP_DEADLINE_S:
        # The run stays on record as one that is being ended: the next "down" or "up" goes on.
        words = f"gave up waiting after {STOP_DEADLINE_S:g} s for {', '.join(left)}"
        note = Note(Reason.ServiceStopped, f"service could not be ended ({memory.reason}): {words}")
        return replace(plan, notes=(note,), exit_code=EXIT_FAILED)
    return plan


def _announces(memory: Memory, seen: Observation, now: float) -> bool:
    """The resource manager lives, reads orders, and has not said that it has those to shut down."""
    if not seen.components[Component.RM].alive or seen.report is None:
        return False
    return not seen.report.shutting_down and 0 <= now - memory.since < ANNOUNCE_S


def _finish(plan: Plan, memory: Memory, now: float) -> Plan:
    phase = ServicePhase.STOPPED if memory.exit_code == EXIT_STOPPED else ServicePhase.FAILED
    note = Note(Reason.ServiceStopped, f"service ended ({memory.reason}): nothing of it is left")
    slices = {index: _ended(kept, now) for index, kept in memory.slices.items()}
    after = replace(memory, phase=phase, since=now, slices=slices)
    return replace(plan, memory=after, notes=(note,), exit_code=memory.exit_code)


def _ended(kept: SliceMemory, now: float) -> SliceMemory:
    if kept.state in (SliceState.FAILED, SliceState.CANCELLED):
        return kept  # ended earlier, for a reason of its own
    return replace(kept, state=SliceState.ENDED, since=now, reason="ended with the service")
