# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What to do about resource manager and proxy: start, restart within a budget, kill. Pure."""

from dataclasses import dataclass, replace

from pathways_slurm.budget import Budget
from pathways_slurm.events import Reason
from pathways_slurm.model import Component, ComponentMemory, ComponentView, Rules
from pathways_slurm.plan import Action, Note, StartComponent, StopComponent
from pathways_slurm.streak import NOT_ONCE

# One that lives, has answered, and does not any more is taken for hung after this long: workers
# outlast that by their lease, and a busy machine can be slow.
_SILENCE_S = 15.0
# One that was just started may take much longer, where a disk or a machine is slow.
_FIRST_ANSWER_S = 120.0

_ENDED = {
    Component.RM: Reason.ResourceManagerEnded,
    Component.PROXY: Reason.ProxyEnded,
}


@dataclass(frozen=True, slots=True)
class ComponentDecision:
    """The part of a plan that concerns RM or proxy. ``failure``: the service must end of it."""

    memory: ComponentMemory
    actions: tuple[Action, ...] = ()
    notes: tuple[Note, ...] = ()
    failure: Note | None = None


def decide_component(
    rules: Rules,
    component: Component,
    view: ComponentView,
    memory: ComponentMemory,
    may_start: bool,
    now: float,
) -> ComponentDecision:
    """Decides from one observation.

    Args:
        rules: Limits.
        component: RM or proxy.
        view: As it is now.
        memory: Of it.
        may_start: What it needs to start is there.
        now: Unix time in seconds.
    """
    if view.alive:
        return _decide_alive(rules, component, view, memory, now)
    memory = replace(memory, answered=False, silence=NOT_ONCE)
    if not may_start:
        return ComponentDecision(memory)
    if not memory.started:
        return ComponentDecision(replace(memory, started=True), (StartComponent(component),))
    return _decide_ended(rules, component, view, memory, now)


def hangs(rules: Rules, memory: ComponentMemory) -> bool:
    """It lives and has been silent for too long."""
    limit_s = max(_SILENCE_S, rules.heartbeat_timeout_s) if memory.answered else _FIRST_ANSWER_S
    return memory.silence.reached(limit_s)


def _decide_alive(
    rules: Rules, component: Component, view: ComponentView, memory: ComponentMemory, now: float
) -> ComponentDecision:
    if view.answers:
        return ComponentDecision(replace(memory, answered=True, silence=NOT_ONCE, killed=""))
    memory = replace(memory, silence=memory.silence.extended(now, rules.longest_gap_s))
    if not hangs(rules, memory):
        return ComponentDecision(memory)
    cause = f"has been silent for {memory.silence.lasted_s:.0f} s"
    if failure := _exhausted(rules, component, memory, cause, now):
        return ComponentDecision(memory, failure=failure)
    kill = StopComponent(component, force=True)
    if memory.killed:
        return ComponentDecision(memory, (kill,))  # the order may not have got through
    words = f"the {component.label} {cause}, though its process lives; it is killed"
    note = Note(Reason.ComponentHung, words, component.value)
    killed = f"was killed: it had been silent for {memory.silence.lasted_s:.0f} s"
    return ComponentDecision(replace(memory, killed=killed), (kill,), (note,))


def _decide_ended(
    rules: Rules, component: Component, view: ComponentView, memory: ComponentMemory, now: float
) -> ComponentDecision:
    cause = memory.killed or view.ended or "is gone"
    if failure := _exhausted(rules, component, memory, cause, now):
        return ComponentDecision(memory, failure=failure)
    budget = Budget(*rules.component_budget)
    if budget.backoff_left(memory.restarts, now):
        return ComponentDecision(memory)
    recent = (*budget.recent(memory.restarts, now), now)
    words = f"the {component.label} {cause}; started again ({budget.describe(recent, now)})"
    return ComponentDecision(
        replace(memory, restarts=recent, killed=""),
        (StartComponent(component),),
        (Note(_ENDED[component], words, component.value),),
    )


def _exhausted(
    rules: Rules, component: Component, memory: ComponentMemory, cause: str, now: float
) -> Note | None:
    budget = Budget(*rules.component_budget)
    if budget.left(memory.restarts, now):
        return None
    words = f"the {component.label} {cause}, and its restart budget has run out"
    words += f" ({budget.describe(memory.restarts, now)})"
    return Note(Reason.BudgetExhausted, words, component.value)
