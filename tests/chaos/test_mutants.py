# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The checker finds supervisors that are broken on purpose, and has nothing against the real one.

Each is a service of the local scheduler that is brought into the situation which its fault is for.
"""

import signal
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType

import pytest
from tests.chaos import mutants
from tests.chaos.checker import Checker
from tests.chaos.judging import Bounds, Violation
from tests.chaos.mutants import Mutant
from tests.chaos.stage import Actors, LocalStage, send, slices_of, subject_of, wait_for

_SLICES = 2
_LEASE_S = 8.0
_BOUNDS = Bounds(
    old_incarnation_s=15.0,
    end_s=15.0,
    blind_s=1.0,
    lease_s=_LEASE_S,
    component_budget=(5, 60.0),
    slice_budget=(1, 60.0),
)


class Scene(AbstractContextManager["Scene"]):
    """A service under the checker's eyes, of a mutant's supervisor or of the real one."""

    def __init__(self, directory: Path, mutant: Mutant | None) -> None:
        settings = {
            "SLICE_SHAPE": "2x2",
            "PATHWAYS_LEASE_S": f"{_LEASE_S:g}",
            "PATHWAYS_SLICE_RESTART_BUDGET": str(_BOUNDS.slice_budget[0]),
        }
        if mutant is not None:
            settings["PYTHONPATH"] = str(mutant.build(directory / "mutant"))
        self.stage = LocalStage(directory / "home", _SLICES, **settings)
        self.home = self.stage.service.home
        self.actors = Actors.at(self.home)
        self.checker = Checker(subject_of(self.stage, _BOUNDS))

    def __enter__(self) -> "Scene":
        self.checker.start()
        self.stage.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stage.close()
        self.checker.close()

    def ready(self, above: int = 0) -> int:
        """Waits until all are ready, slice 0 in an incarnation that is newer; returns which."""

        def well() -> bool:
            status = dict(self.checker.latest.status)
            slices = slices_of(status)
            states = [one["state"] for one in slices]
            return (
                status.get("service") == "READY"
                and states == ["READY"] * _SLICES
                and slices[0]["incarnation"] > above
            )

        self.await_(well, "all slices are ready")
        return int(slices_of(dict(self.checker.latest.status))[0]["incarnation"])

    def await_(self, condition: Callable[[], object], what: str, timeout_s: float = 60.0) -> None:
        try:
            wait_for(condition, timeout_s, what, lambda: None)
        except TimeoutError as error:
            raise AssertionError(f"{error}\n{self.stage.service.logs()}") from None

    def lose(self, index: int) -> None:
        """Kills a slice, which the checker is told."""
        self.checker.cause(index)
        send(signal.SIGKILL, *(worker.process for worker in self.actors.workers(index)))

    def blind(self) -> None:
        """For a while the scheduler can't read its files, so it can't tell anything."""
        (spec,) = (self.home / "state" / "local").glob("*/spec.json")
        text = spec.read_text()
        spec.write_text("garbage")
        self.await_(lambda: self.said("SchedulerUnavailable"), "the scheduler is blind")
        # Several looks, of the supervisor's and of ours.
        seen = self.checker.latest.time
        self.await_(lambda: self.checker.latest.time > seen + 3.0, "some looks later")
        spec.write_text(text)
        self.await_(lambda: self.said("SchedulerAnswersAgain"), "it sees again")

    def said(self, reason: str) -> bool:
        return any(event["reason"] == reason for event in self.stage.service.events())

    def kill_root_and_below(self) -> None:
        """All but the guards."""
        roles = ("root", "supervisor", "rm", "proxy")
        send(signal.SIGKILL, *(one for role in roles for one in self.actors.named(role)))

    def violations(self, timeout_s: float = 40.0) -> list[Violation]:
        """Waits for the first."""
        self.await_(lambda: self.checker.violations, "the checker finds something", timeout_s)
        return self.checker.violations


def _lose_twice(scene: Scene) -> None:
    first = scene.ready()
    scene.lose(0)
    scene.ready(above=first)
    scene.lose(0)


def _when_ready(then: Callable[[Scene], None]) -> Callable[[Scene], None]:
    def provoke(scene: Scene) -> None:
        scene.ready()
        then(scene)

    return provoke


def _nothing(scene: Scene) -> None:
    del scene


CASES: list[tuple[Mutant, Callable[[Scene], None]]] = [
    (mutants.KEEPS_THE_ADDRESS, _when_ready(Scene.kill_root_and_below)),
    (mutants.GRANTS_NO_LEASE, _when_ready(Scene.kill_root_and_below)),
    (mutants.TAKES_SILENCE_FOR_LOSS, _when_ready(Scene.blind)),
    (mutants.REQUEUES_THE_HEALTHY, _nothing),
    (mutants.SUBMITS_AGAIN, _nothing),
    (mutants.HAS_NO_BUDGET, _lose_twice),
    (mutants.GIVES_NO_REASON, _nothing),
    (mutants.SAYS_ANYTHING, _nothing),
]


@pytest.mark.parametrize(("mutant", "provoke"), CASES, ids=[case[0].name for case in CASES])
def test_a_broken_supervisor_is_found(
    tmp_path: Path, mutant: Mutant, provoke: Callable[[Scene], None]
) -> None:
    with Scene(tmp_path, mutant) as scene:
        provoke(scene)
        found = scene.violations()
        # One that crashes does not do what it is for.
        for word in ("SupervisorAdopted", "ServiceStopped"):
            assert not scene.said(word), scene.stage.service.logs()
    broken = {violation.invariant for violation in found}
    assert mutant.invariant in broken, found
    assert broken <= {mutant.invariant, *mutant.may_follow}, found


def test_nothing_is_found_where_nothing_is_broken(tmp_path: Path) -> None:
    """All that the mutants are provoked by, with the real supervisor."""
    with Scene(tmp_path, None) as scene:
        first = scene.ready()
        scene.blind()
        scene.lose(0)
        scene.ready(above=first)
        scene.lose(0)
        scene.await_(lambda: scene.said("SliceFailed"), "its budget runs out")
        scene.kill_root_and_below()
        began = time.time()
        scene.await_(lambda: not scene.checker.latest.processes, "nothing is left")
        # As long as the rules' bounds.
        scene.await_(
            lambda: scene.checker.latest.time > began + _BOUNDS.end_s + 1, "their time is over"
        )
        assert scene.checker.violations == []
