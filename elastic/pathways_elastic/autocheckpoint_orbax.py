# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Where Orbax is told of an autocheckpoint: four methods of its CheckpointManager.

Orbax asks JAX whether the process is to end, and behind the proxy it does not even ask. So
``reached_preemption`` is answered here, ``save`` goes through here to be waited for, and
``restore`` to say how old a checkpoint is. What a save deletes by the program's rules is looked
through: an autocheckpoint that is none of the best would go in the very save that makes it.
"""

import datetime
import functools
import logging
from collections.abc import Callable
from typing import Any, Protocol

from orbax.checkpoint import CheckpointManager

_log = logging.getLogger("pathways_elastic")

# save(step, items, save_kwargs, metrics, force, …): how many arguments are between the two.
_BEFORE_FORCE = 3

# Orbax' own, and so not to be relied on: a release without it goes without what is done there.
_REMOVALS = "_get_old_steps_to_remove"


class Saver(Protocol):
    """What decides on steps, and settles those that were decided on."""

    def reached(self, step: int) -> bool:
        """Whether this step is to be saved, whatever the program's own schedule is."""
        ...

    def keeps(self, step: int) -> bool:
        """Whether this step must not be deleted before there is a later one."""
        ...

    def save(self, manager: CheckpointManager, step: int, save: Callable[..., bool]) -> bool:
        """Calls ``save``, which takes ``force``, and returns what it returned."""
        ...


def hook(saver: Saver) -> Callable[[], None]:
    """Has every CheckpointManager, present and future, ask ``saver``; returns what undoes it."""
    names = ("save", "reached_preemption", "restore", _REMOVALS)
    originals = {
        name: getattr(CheckpointManager, name) for name in names if hasattr(CheckpointManager, name)
    }

    @functools.wraps(originals["save"])
    def save(manager: CheckpointManager, step: int, *args: Any, **kwargs: Any) -> bool:
        def now(*, force: bool = False) -> bool:
            named = kwargs | {"force": True} if force and len(args) <= _BEFORE_FORCE else kwargs
            saved: bool = originals["save"](manager, step, *args, **named)
            return saved

        return saver.save(manager, step, now)

    @functools.wraps(originals["reached_preemption"])
    def reached_preemption(manager: CheckpointManager, step: int) -> bool:
        return saver.reached(step) or bool(originals["reached_preemption"](manager, step))

    @functools.wraps(originals["restore"])
    def restore(manager: CheckpointManager, step: int | None, *args: Any, **kwargs: Any) -> Any:
        if (found := manager.latest_step() if step is None else step) is not None:
            _log.info("restoring the checkpoint of step %d, %s", found, age(manager, found))
        return originals["restore"](manager, step, *args, **kwargs)

    def steps_to_remove(manager: CheckpointManager) -> list[int]:
        removed: list[int] = originals[_REMOVALS](manager)
        newest = max(set(manager.all_steps()) - set(removed), default=-1)
        return [step for step in removed if step < newest or not saver.keeps(step)]

    for wrapper in (save, reached_preemption, restore):
        setattr(CheckpointManager, wrapper.__name__, wrapper)
    if _REMOVALS in originals:
        setattr(CheckpointManager, _REMOVALS, steps_to_remove)

    def unhook() -> None:
        for name, original in originals.items():
            setattr(CheckpointManager, name, original)

    return unhook


def can_save(manager: CheckpointManager, step: int) -> bool:
    """Whether Orbax would save the step if its schedule said so."""
    latest = manager.latest_step()
    return not manager._options.read_only and (latest is None or latest < step)


def is_committed(manager: CheckpointManager, step: int) -> bool:
    """Whether a restart would find the step."""
    return step in _committed(manager)


def age(manager: CheckpointManager, step: int) -> str:
    """How long ago a step was committed, in words."""
    try:
        when = _committed(manager)[step].commit_timestamp
    except KeyError:
        return "which is not committed"
    seconds = (datetime.datetime.now(tz=datetime.UTC) - when).total_seconds()
    return f"committed {seconds:.0f} s ago"


def last_committed(manager: CheckpointManager) -> str:
    """What a restart would go on from, in words."""
    if not (steps := _committed(manager)):
        return "no checkpoint is committed"
    return f"the last committed checkpoint is of step {max(steps)}, {age(manager, max(steps))}"


def _committed(manager: CheckpointManager) -> dict[int, Any]:
    """Step → Orbax' metadata of it, as they are in the storage.

    Not the manager's own list: steps are in it as soon as their save begins.
    """
    return {found.step: found for found in manager._step_name_format.find_all(manager.directory)}
