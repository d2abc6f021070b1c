# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Whether a slice may be started over: within the budget of its cause, and not too soon. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from pathways_slurm.causes import Cause, OnBudget
from pathways_slurm.model import Rules, SliceMemory
from pathways_slurm.plan import Action
from pathways_slurm.states import SliceState


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is concluded of a slice at one look.

    Attributes:
        state: As to be shown.
        reason: Likewise.
        actions: To be performed.
        spent: The slice's restarts by cause, if they have changed.
        ordered: Incarnation whose restart is ordered with this, if one is.
        exhausted: The cause whose budget has run out.
    """

    state: SliceState
    reason: str
    actions: tuple[Action, ...] = ()
    spent: Mapping[Cause, tuple[float, ...]] | None = None
    ordered: int | None = None
    exhausted: Cause | None = None


@dataclass(frozen=True, slots=True)
class Retry:
    """A restart that is wanted.

    Attributes:
        cause: That it is counted as.
        words: Of the cause, for people.
        done: What is done about it, for people ("requeued").
        actions: That do it.
        incarnation: Of the run that is over.
    """

    cause: Cause
    words: str
    done: str
    actions: tuple[Action, ...]
    incarnation: int


def retry(rules: Rules, memory: SliceMemory, wanted: Retry, now: float) -> Verdict:
    """The verdict: done now, put off, or given up.

    The longer the list of recent restarts, the longer the pause before the next, whatever their
    causes were: a slice that fails in turns in two ways is not to be started over twice as often.
    """
    if memory.state is SliceState.FAILED:
        # For good: a budget whose window has passed since does not bring it back.
        return Verdict(memory.state, memory.reason, exhausted=memory.exhausted)
    budget = rules.budget(wanted.cause)
    spent = memory.spent.get(wanted.cause, ())
    if not budget.left(spent, now):
        figures = budget.describe(spent, now)
        words = f"{wanted.words}; its {wanted.cause} restart budget has run out ({figures})"
        if rules.on_budget is OnBudget.WAIT:
            words += "; it is tried again once that allows"
            return Verdict(SliceState.PENDING, words, exhausted=wanted.cause)
        return Verdict(SliceState.FAILED, words, exhausted=wanted.cause)
    if budget.backoff_left(memory.failures, now) > 0:
        words = f"{wanted.words}; backs off before the next try"
        return Verdict(SliceState.PENDING, words)
    return Verdict(
        SliceState.PENDING,
        f"{wanted.words}; {wanted.done}",
        wanted.actions,
        {**memory.spent, wanted.cause: (*budget.recent(spent, now), now)},
        wanted.incarnation,
    )
