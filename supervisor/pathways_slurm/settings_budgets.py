# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The settings of slices' restart budgets: one of each cause, and what follows when it runs out."""

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator

from pathways_slurm.causes import Cause, OnBudget
from pathways_slurm.setting_types import setting

_FORM = re.compile(r"([0-9]{1,9})/([0-9]{1,9}(?:\.[0-9]{1,9})?)")


def _budget(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    match = _FORM.fullmatch(value)
    if match is None:
        raise ValueError("is not of the form RESTARTS/SECONDS")
    if float(match[2]) < 1:
        raise ValueError("has a window of less than a second")
    return int(match[1]), float(match[2])


_Budget = Annotated[tuple[int, float] | None, BeforeValidator(_budget)]


def _of(cause: Cause) -> Any:
    return setting(
        "PATHWAYS_BUDGET_" + cause.value.upper().replace("-", "_"),
        f"Restarts of a slice in one window because {cause.meaning}",
        "RESTARTS/SECONDS, such as 10/600",
        default=None,
        default_text="PATHWAYS_SLICE_RESTART_BUDGET/PATHWAYS_SLICE_RESTART_WINDOW_S",
    )


class BudgetSettings(BaseModel):
    """How often a slice is started over, by cause; what is not set has the common budget."""

    budget_crash: _Budget = _of(Cause.CRASH)
    budget_exit: _Budget = _of(Cause.EXIT)
    budget_hang: _Budget = _of(Cause.HANG)
    budget_launch: _Budget = _of(Cause.LAUNCH)
    budget_node: _Budget = _of(Cause.NODE)
    budget_time_limit: _Budget = _of(Cause.TIME_LIMIT)
    budget_missing: _Budget = _of(Cause.MISSING)
    on_budget: OnBudget = setting(
        "PATHWAYS_ON_BUDGET",
        "When a restart budget of a slice has run out: the slice stays down, the service ends, or "
        "the slice is tried again once the window allows",
        "slice, service, wait",
        default="slice",
    )

    @property
    def budgets(self) -> Mapping[Cause, tuple[int, float]]:
        """Those that were set."""
        known = {
            Cause.CRASH: self.budget_crash,
            Cause.EXIT: self.budget_exit,
            Cause.HANG: self.budget_hang,
            Cause.LAUNCH: self.budget_launch,
            Cause.NODE: self.budget_node,
            Cause.TIME_LIMIT: self.budget_time_limit,
            Cause.MISSING: self.budget_missing,
        }
        return {cause: budget for cause, budget in known.items() if budget is not None}
