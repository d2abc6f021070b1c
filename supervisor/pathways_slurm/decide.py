# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What to do about the whole service. Pure: rules, memory and one observation in, a plan out.

Level-triggered: every plan follows from what is observed now; memory only holds what can no longer
be observed. A look that failed leaves the slices as they were.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pathways_slurm.causes import OnBudget
from pathways_slurm.decide_components import decide_component, hangs
from pathways_slurm.decide_maintenance import requests_in_force
from pathways_slurm.decide_nodes import SliceEnds, decide_nodes
from pathways_slurm.decide_notices import inform
from pathways_slurm.decide_pace import SHORTEST_S, look_again_s
from pathways_slurm.decide_slice import decide_slice
from pathways_slurm.decide_stop import EXIT_FAILED, EXIT_STOPPED, begin_stop, decide_stop
from pathways_slurm.events import Reason
from pathways_slurm.model import Component, Memory, Observation, Rules, SliceMemory, Submission
from pathways_slurm.plan import Action, Note, Plan, Publish, Release, Requeue, Submit, Withdraw
from pathways_slurm.scheduler.base import Task
from pathways_slurm.slice_view import SliceView
from pathways_slurm.states import ServicePhase, SliceState


def decide(rules: Rules, memory: Memory, seen: Observation, now: float) -> Plan:
    """Returns what to do now.

    Args:
        rules: Limits from the settings.
        memory: Of the last plan, with the ids of arrays submitted since.
        seen: One observation.
        now: Unix time in seconds.
    """
    for tag, array_id in seen.found.items():
        memory = memory.with_array(tag, array_id)
    return inform(_decide(rules, memory, seen, now), seen)


def _decide(rules: Rules, memory: Memory, seen: Observation, now: float) -> Plan:
    if memory.phase is not ServicePhase.STOPPING and not seen.stop_reason:
        draft = _Draft(rules, memory, seen, now)
        draft.decide_components()
        draft.decide_slices()
        draft.decide_publication()
        draft.check_hope()
        if draft.failure is None:
            draft.decide_phase()
            return draft.plan()
        draft.notes.append(draft.failure)
        stopping = begin_stop(draft.memory, draft.failure.message, EXIT_FAILED, now)
        plan = decide_stop(stopping, seen, now)
        return replace(plan, notes=(*draft.notes, *plan.notes))
    if memory.phase is ServicePhase.STOPPING:
        return decide_stop(memory, seen, now)
    plan = decide_stop(begin_stop(memory, seen.stop_reason, EXIT_STOPPED, now), seen, now)
    note = Note(Reason.ServiceStopping, f"service is ending: {seen.stop_reason}")
    return replace(plan, notes=(note, *plan.notes))


def ready_slices(memory: Memory) -> tuple[int, ...]:
    """Indices of the slices that were ready at the last look."""
    return tuple(i for i, s in sorted(memory.slices.items()) if s.state is SliceState.READY)


def newest_tasks(tasks: tuple[Task, ...]) -> dict[int, Task]:
    """The task of the greatest incarnation of each slice."""
    newest: dict[int, Task] = {}
    for task in tasks:
        known = newest.get(task.index)
        if known is None or task.incarnation > known.incarnation:
            newest[task.index] = task
    return newest


@dataclass
class _Draft:
    """A plan in the making; each step reads the observation and adds to it."""

    rules: Rules
    memory: Memory
    seen: Observation
    now: float
    actions: list[Action] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    failure: Note | None = None

    def plan(self) -> Plan:
        answering = [c for c in Component if self.seen.components[c].answers]
        again_s = look_again_s(self.rules, self.memory, answering, self.now)
        if any(isinstance(action, Publish) for action in self.actions):
            # Only once it is seen there is the service called ready.
            again_s = min(again_s, SHORTEST_S)
        return Plan(tuple(self.actions), tuple(self.notes), self.memory, again_s)

    def decide_components(self) -> None:
        """Starts what does not live; kills what hangs.

        Both start together: a proxy takes a while before it needs RM, and can wait for it. One that
        has ended is not started again while RM is away, which may be what has ended it.
        """
        for component in Component:
            rm_answers = self.seen.components[Component.RM].answers
            first = not self.memory.component(component).started
            decision = decide_component(
                self.rules,
                component,
                self.seen.components[component],
                self.memory.component(component),
                component is Component.RM or rm_answers or first,
                self.now,
            )
            self.memory = self.memory.with_component(component, decision.memory)
            self.actions.extend(decision.actions)
            self.notes.extend(decision.notes)
            self.failure = self.failure or decision.failure

    def decide_slices(self) -> None:
        """Looks after every slice; submits those that no array covers."""
        if not self._scheduler_answers():
            return
        assert self.seen.tasks is not None
        newest = newest_tasks(self.seen.tasks)
        before = self.memory.slices
        pending = [s for s in self.memory.submissions if not s.array_id]
        self.actions.extend(Submit(s) for s in pending)
        covered = {i for s in self.memory.submissions for i in s.indices}
        unanswered = {i for s in pending for i in s.indices}
        fresh = [i for i in range(self.rules.max_slices) if i not in covered]
        slices = {i: self.memory.slice(i) for i in range(self.rules.max_slices)}
        orders: list[Action] = []
        for index in sorted(covered - unanswered):
            view = self._view(index, newest.get(index))
            decision = decide_slice(self.rules, index, view, slices[index], self.now)
            slices[index] = decision.memory
            orders.extend(decision.actions)
            self.notes.extend(decision.notes)
            if decision.resubmit:
                fresh.append(index)
        self.memory = replace(self.memory, slices=slices)
        # Once it is released, a task starts, on any node that it is not kept off by then.
        self.actions.extend(order for order in orders if not isinstance(order, Release))
        self._decide_nodes(before, newest, {o.task_id for o in orders if isinstance(o, Requeue)})
        self.actions.extend(order for order in orders if isinstance(order, Release))
        if fresh:
            self._submit(tuple(sorted(fresh)), slices)

    def _decide_nodes(
        self, before: Mapping[int, SliceMemory], newest: dict[int, Task], requeued: set[str]
    ) -> None:
        """Looks after the nodes, with the tasks in ``requeued`` about to wait for some."""
        if self.rules.nodes is None:
            return
        ends = SliceEnds(before, self.memory.slices, newest, requeued)
        decision = decide_nodes(
            self.rules.nodes, self.memory.nodes, ends, self.seen.power, self.now
        )
        self.memory = replace(self.memory, nodes=decision.memory)
        self.actions.extend(decision.actions)
        self.notes.extend(decision.notes)

    def _view(self, index: int, task: Task | None) -> SliceView:
        report = self.seen.report
        told = {s.index: s for s in report.slices} if report else {}
        return SliceView(
            task=task,
            silent=self.seen.silent.get(index),
            report=told.get(index),
            settled=report is not None and report.settled,
            acknowledged=frozenset(run for i, run in self.seen.acknowledged if i == index),
            maintenance=requests_in_force(self.seen.maintenance, self.memory).get(index),
        )

    def _scheduler_answers(self) -> bool:
        silent = self.seen.tasks is None
        if silent and not self.memory.scheduler_silent:
            words = f"the scheduler does not answer ({self.seen.stale_reason}); "
            words += "slices are shown as last known"
            self.notes.append(Note(Reason.SchedulerUnavailable, words, "scheduler"))
        elif self.memory.scheduler_silent and not silent:
            words = "the scheduler answers again"
            self.notes.append(Note(Reason.SchedulerAnswersAgain, words, "scheduler"))
        self.memory = replace(self.memory, scheduler_silent=silent)
        return not silent

    def _submit(self, indices: tuple[int, ...], slices: dict[int, SliceMemory]) -> None:
        first = 1 + max(s.incarnation for s in slices.values())
        tag = f"{self.memory.run_id}-{len(self.memory.submissions)}"
        submission = Submission(tag, indices, first)
        submissions = (*self.memory.submissions, submission)
        self.memory = replace(self.memory, submissions=submissions)
        self.actions.append(Submit(submission))
        listed = ", ".join(map(str, indices))
        words = f"submitting slice{'s' if len(indices) > 1 else ''} {listed} as {tag}"
        self.notes.append(Note(Reason.ArraySubmitted, words))

    def decide_publication(self) -> None:
        """Announces the proxy once enough slices are ready; withdraws what no longer answers."""
        proxy = self.seen.components[Component.PROXY]
        kept = self.memory.component(Component.PROXY)
        ready = len(ready_slices(self.memory))
        if self.seen.published:
            why = ""
            if not proxy.alive:
                why = f"the IFRT proxy {proxy.ended or 'is gone'}"
            elif hangs(self.rules, kept):
                why = f"the IFRT proxy has not answered for {kept.silence.lasted_s:.0f} s"
            if why:
                self.actions.append(Withdraw())
                words = f"cluster.env withdrawn: {why}"
                self.notes.append(Note(Reason.ClusterEnvWithdrawn, words))
        elif proxy.answers and ready >= self.rules.min_slices:
            self.actions.append(Publish())
            words = f"cluster.env published: {ready} of {self.rules.max_slices} slices are ready"
            self.notes.append(Note(Reason.ClusterEnvPublished, words))

    def check_hope(self) -> None:
        """Fails the service when MIN_SLICES can no longer be reached, by itself or in time."""
        self._check_start_time()
        gone = {
            i: s.reason
            for i, s in sorted(self.memory.slices.items())
            if s.state in (SliceState.FAILED, SliceState.CANCELLED)
        }
        failed = [i for i in gone if self.memory.slice(i).state is SliceState.FAILED]
        if failed and self.rules.on_budget is OnBudget.SERVICE and self.failure is None:
            words = "; ".join(f"slice {i}: {gone[i]}" for i in failed)
            words += f" (PATHWAYS_ON_BUDGET={self.rules.on_budget})"
            self.failure = Note(Reason.BudgetExhausted, words)
        can_come = self.rules.max_slices - len(gone)
        if can_come < self.rules.min_slices and self.failure is None:
            words = f"only {can_come} of {self.rules.max_slices} slices can still come, fewer than"
            words += f" MIN_SLICES={self.rules.min_slices} ("
            words += "; ".join(f"slice {i}: {reason}" for i, reason in gone.items()) + ")"
            self.failure = Note(Reason.BudgetExhausted, words)

    def _check_start_time(self) -> None:
        limit = self.rules.start_timeout_s
        starting = self.memory.phase is ServicePhase.STARTING and not self.seen.published
        if limit is None or not starting or self.now - self.memory.since < limit:
            return
        ready = len(ready_slices(self.memory))
        words = f"not ready {self.now - self.memory.since:.0f} s after the start"
        words += f" (PATHWAYS_START_TIMEOUT_S={limit:g}): {ready} of {self.rules.max_slices} slices"
        words += f" are, and {self.rules.min_slices} must be"
        self.failure = self.failure or Note(Reason.BudgetExhausted, words)

    def decide_phase(self) -> None:
        """What a user reads of the service as a whole."""
        before = self.memory.phase
        ready = len(ready_slices(self.memory))
        answers = self.seen.components[Component.PROXY].answers
        enough = ready >= self.rules.min_slices
        reason = f"{ready} of {self.rules.max_slices} slices ready"
        if not enough:
            reason += f", fewer than MIN_SLICES={self.rules.min_slices}"
        if not answers:
            reason += "; the IFRT proxy does not answer"
        if self.memory.scheduler_silent:
            reason += "; the scheduler does not answer"
        phase = ServicePhase.DEGRADED
        if answers and enough and (self.seen.published or before is not ServicePhase.STARTING):
            phase = ServicePhase.READY
        elif before is ServicePhase.STARTING:
            phase = before
        since = self.memory.since if phase is before else self.now
        self.memory = replace(self.memory, phase=phase, since=since, reason=reason)
