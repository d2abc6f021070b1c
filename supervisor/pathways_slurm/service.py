# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The loop: look, decide, save, perform, wait."""

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from pathways_slurm.decide import decide
from pathways_slurm.decide_stop import EXIT_FAILED, begin_stop
from pathways_slurm.events import EventLog, Reason
from pathways_slurm.execute import Executor
from pathways_slurm.logs import get_logger
from pathways_slurm.model import Component, Memory, Observation, Rules
from pathways_slurm.observe import Observer
from pathways_slurm.plan import Action, Note, Plan, Submit
from pathways_slurm.scheduler.base import SchedulerError, SchedulerUnavailable
from pathways_slurm.states import ServicePhase
from pathways_slurm.wakeup import Wakeup

_log = get_logger(__name__)

# Between two submissions of slices that the scheduler does not take at present.
_REFUSED_PAUSE_S = 30.0


@dataclass
class Service:
    """One run of a service, from its first look until nothing of it is left.

    Attributes:
        rules: Limits for decisions.
        memory: As loaded, or new.
        save: Puts the memory on disk.
        show: Puts the status where ``status`` finds it.
        clock: Unix time in seconds.
    """

    rules: Rules
    memory: Memory
    observer: Observer
    executor: Executor
    events: EventLog
    save: Callable[[Memory], None]
    show: Callable[[Memory, Observation], None]
    clock: Callable[[], float] = time.time
    _complaints: dict[str, str] = field(default_factory=dict)
    _faults: frozenset[str] = frozenset()
    _refusals: dict[str, float] = field(default_factory=dict)

    def run(self, wakeup: Wakeup, stop_reason: str = "") -> int:
        """Loops until the service has ended and returns the supervisor's exit code.

        Args:
            wakeup: Interrupts the wait between two looks.
            stop_reason: Ends the run from the start on, to clean up after an earlier supervisor.
        """
        while True:
            # Before the look: what is written meanwhile leads to another one.
            stamps = self.observer.stamps()
            seen = self.observer.look(self.memory, stop_reason or wakeup.stop_reason)
            plan = decide(self.rules, self.memory, seen, self.clock())
            self._adopt(plan, seen)
            if plan.exit_code is not None:
                return plan.exit_code
            # A stop that arrived during this round is looked at without any wait.
            asked = wakeup.stop_reason and self.memory.phase is not ServicePhase.STOPPING
            pause = 0.0 if asked else plan.look_again_s
            starting = [
                component
                for component, view in seen.components.items()
                if view.alive and not self.memory.component(component).answered
            ]
            wakeup.wait(pause, functools.partial(self._anything_new, stamps, starting))

    def _anything_new(self, stamps: tuple[object, ...], starting: list[Component]) -> bool:
        return self.observer.stamps() != stamps or self.observer.begun_to_answer(starting)

    def _adopt(self, plan: Plan, seen: Observation) -> None:
        for subject, words in seen.faults.items():
            self._complain(subject, words)
        for subject in self._faults - seen.faults.keys():
            self._complaints.pop(subject, None)
        self._faults = frozenset(seen.faults)
        changed = plan.memory != self.memory
        self.memory = plan.memory
        for note in plan.notes:
            self._note(note)
        saved = not changed or self._try("save the run's record", self.save, plan.memory)
        for action in plan.actions:
            # The intent must be on disk before an array exists that only it can name.
            if not isinstance(action, Submit) or (saved and self._is_due(action)):
                self._perform(action)
        if self.memory != plan.memory:
            self._try("save the run's record", self.save, self.memory)
        self._try("write the status", self.show, self.memory, seen)

    def _perform(self, action: Action) -> None:
        name = type(action).__name__
        try:
            self.memory = self.executor.perform(action, self.memory)
        except SchedulerUnavailable as error:
            self._complain(name, f"the scheduler gave no answer: {error}")
        except SchedulerError as error:
            if isinstance(action, Submit):
                self._refused(action, f"the scheduler refused the array: {error}")
            else:
                self._complain(name, f"the scheduler refused: {error}")
        except OSError as error:
            self._complain(name, str(error))
        else:
            self._complaints.pop(name, None)

    def _refused(self, action: Submit, words: str) -> None:
        """Ends a service that gets no slices at all; one that has some goes on with them.

        A partition that is closed, or a limit that is reached, may be otherwise in a while.
        """
        if any(submission.array_id for submission in self.memory.submissions):
            self._refusals[action.submission.tag] = self.clock()
            words = f"{words}; asked again every {_REFUSED_PAUSE_S:g} s"
            if self._complaints.get(action.submission.tag) != words:
                self._note(Note(Reason.SubmissionRefused, words, "scheduler"))
            self._complain(action.submission.tag, words)
            return
        self._note(Note(Reason.ServiceStopping, words))
        dropped = tuple(s for s in self.memory.submissions if s != action.submission)
        memory = replace(self.memory, submissions=dropped)
        self.memory = begin_stop(memory, words, EXIT_FAILED, self.clock())

    def _is_due(self, action: Submit) -> bool:
        refused = self._refusals.get(action.submission.tag)
        return refused is None or not 0 <= self.clock() - refused < _REFUSED_PAUSE_S

    def _note(self, note: Note) -> None:
        _log.info(note.message, reason=note.reason.value, subject=note.subject)
        self._try("write to the event log", self.events.append, note)

    def _try(self, what: str, write: Callable[..., Any], *args: Any) -> bool:
        """Calls ``write``; a disk that is full for a while must not end the service."""
        try:
            write(*args)
        except OSError as error:
            self._complain(what, f"could not {what}: {error}")
            return False
        self._complaints.pop(what, None)
        return True

    def _complain(self, subject: str, words: str) -> None:
        """Logs a difficulty once, not at every look that meets it again."""
        if self._complaints.get(subject) != words:
            self._complaints[subject] = words
            _log.warning(words, action=subject)
