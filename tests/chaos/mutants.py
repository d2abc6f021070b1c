# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Supervisors that are broken on purpose, one invariant each: a checker has to find them.

A mutant is a copy of the package to one of whose modules code was added.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.service import CHECKOUT

_PACKAGE = Path("supervisor") / "pathways_slurm"


@dataclass(frozen=True)
class Mutant:
    """A broken supervisor.

    Attributes:
        name: What it does wrong.
        invariant: That it breaks.
        changes: Module's file → code that is added at its end.
        may_follow: Invariants that may break as a consequence.
    """

    name: str
    invariant: int
    changes: dict[str, str]
    may_follow: frozenset[int] = frozenset()

    def build(self, directory: Path) -> Path:
        """Makes it below ``directory``; returns what PYTHONPATH must be."""
        package = directory / _PACKAGE
        shutil.copytree(CHECKOUT / _PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
        # The package finds its scripts beside it.
        (directory / "scripts").symlink_to(CHECKOUT / "scripts")
        for name, code in self.changes.items():
            module = package / name
            module.write_text(f"{module.read_text()}\n\n{code}")
        return package.parent


_KEEPS_THE_ADDRESS_IN_COMPONENT = """
_start = ComponentProcess.start


def _start_without_withdrawal(self, argv, env):
    from dataclasses import replace

    return _start(replace(self, withdraw=None), argv, env)


ComponentProcess.start = _start_without_withdrawal
"""

_KEEPS_THE_ADDRESS_IN_CLUSTER_ENV = """
def remove(path, run_id):
    return False
"""

# Told to end, or seeing their RM end in order, workers go anyway: only the lease ends the rest.
_GRANTS_NO_LEASE = """
_honest = worker_env


def worker_env(settings, service_address):
    return _honest(settings, service_address) | {"PATHWAYS_LEASE_S": "3600"}
"""

_TAKES_SILENCE_FOR_LOSS = """
_honest = decide


def decide(rules, memory, seen, now):
    from pathways_slurm.plan import Requeue

    plan = _honest(rules, memory, seen, now)
    if seen.tasks is not None or memory.phase is ServicePhase.STOPPING:
        return plan
    array = memory.submissions[0].array_id
    lost = ready_slices(memory)
    notes = (Note(Reason.SliceLost, f"slice {i} lost: no answer", f"slice {i}") for i in lost)
    requeues = (Requeue(f"{array}_{i}", i) for i in lost)
    return replace(plan, notes=(*plan.notes, *notes), actions=(*plan.actions, *requeues))
"""

_REQUEUES_THE_HEALTHY = """
_honest = decide_slice


def decide_slice(rules, index, view, memory, now):
    decision = _honest(rules, index, view, memory, now)
    if index or view.task is None or decision.memory.state != "READY":
        return decision
    return replace(decision, actions=(Requeue(view.task.id, index),))
"""

_SUBMITS_AGAIN = """
_honest = _Draft.decide_slices


def _again(self):
    _honest(self)
    slices = dict(self.memory.slices)
    if slices and len(ready_slices(self.memory)) < self.rules.max_slices:
        self._submit(tuple(range(self.rules.max_slices)), slices)


_Draft.decide_slices = _again
"""

_HAS_NO_BUDGET = """
Budget.left = lambda self, spent, now: self.limit
Budget.backoff_left = lambda self, spent, now: 0.0
"""

_GIVES_NO_REASON = """
_honest = _slice


def _slice(index, memory, task):
    return {**_honest(index, memory, task), "reason": ""}
"""

_SAYS_ANYTHING = """
_honest = EventLog.append


def _mumble(self, entry, **fields):
    from types import SimpleNamespace

    reason = SimpleNamespace(value="Something")
    mumbled = SimpleNamespace(reason=reason, message=entry.message, subject=entry.subject)
    _honest(self, mumbled, **fields)


EventLog.append = _mumble
"""

KEEPS_THE_ADDRESS = Mutant(
    "keeps cluster.env when its proxy has ended",
    2,
    {
        "component.py": _KEEPS_THE_ADDRESS_IN_COMPONENT,
        "cluster_env.py": _KEEPS_THE_ADDRESS_IN_CLUSTER_ENV,
    },
)
GRANTS_NO_LEASE = Mutant("has its workers outlive it", 3, {"launch.py": _GRANTS_NO_LEASE})
TAKES_SILENCE_FOR_LOSS = Mutant(
    "requeues what it can't observe", 4, {"decide.py": _TAKES_SILENCE_FOR_LOSS}
)
REQUEUES_THE_HEALTHY = Mutant(
    "requeues a slice that is well", 4, {"decide_slice.py": _REQUEUES_THE_HEALTHY}
)
SUBMITS_AGAIN = Mutant(
    "submits slices again that are there",
    5,
    {"decide.py": _SUBMITS_AGAIN},
    # The tasks of a slice fight for its port, and those that lose are started again.
    may_follow=frozenset({4}),
)
HAS_NO_BUDGET = Mutant("restarts without end", 6, {"budget.py": _HAS_NO_BUDGET})
GIVES_NO_REASON = Mutant("shows slices without a reason", 7, {"status.py": _GIVES_NO_REASON})
SAYS_ANYTHING = Mutant("writes events of no known kind", 7, {"events.py": _SAYS_ANYTHING})
