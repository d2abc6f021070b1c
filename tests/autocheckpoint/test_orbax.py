# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Requests and a real CheckpointManager, in the tests' own process and without a service."""

import logging
import queue
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orbax.checkpoint as ocp
import orbax.checkpoint.experimental.v1 as v1
import pytest
from orbax.checkpoint._src.path import atomicity
from tests.autocheckpoint.running import committed

from pathways_elastic import autocheckpoint, autocheckpoint_latch
from pathways_elastic.autocheckpoint import (
    EXIT_SAVED,
    Autocheckpoint,
    AutocheckpointPolicy,
    NotCommittedError,
    Options,
)

type Enable = Callable[..., Autocheckpoint]
type Make = Callable[..., ocp.CheckpointManager]


@pytest.fixture
def enable() -> Iterator[Enable]:
    """Turns autocheckpoint on until the end of the test."""

    def on(**options: Any) -> Autocheckpoint:
        return autocheckpoint.enable(Options(True, **options), environ={})

    before = signal.getsignal(signal.SIGTERM)
    yield on
    autocheckpoint.disable()
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Makes managers that by themselves save the first step and no other."""
    made: list[ocp.CheckpointManager] = []

    def one(**options: Any) -> ocp.CheckpointManager:
        chosen = ocp.CheckpointManagerOptions(**{"save_interval_steps": 10**6, **options})
        made.append(ocp.CheckpointManager(tmp_path / "steps", options=chosen))
        return made[-1]

    yield one
    for manager in made:
        manager.close()


def save(manager: ocp.CheckpointManager, step: int) -> bool:
    state = {"x": np.full(4, step, np.float32)}
    return bool(manager.save(step, args=ocp.args.StandardSave(state)))


def test_the_step_after_the_request_is_committed_when_save_returns_and_no_other(
    enable: Enable, make: Make, tmp_path: Path
) -> None:
    request, manager = enable(), make()
    assert [save(manager, step) for step in (1, 2)] == [True, False]
    manager.wait_until_finished()
    signal.raise_signal(signal.SIGTERM)
    assert request.requested
    assert manager.reached_preemption(3)
    assert save(manager, 3)
    assert committed(tmp_path / "steps") == [1, 3]
    # What frameworks ask after a save, to end by themselves.
    assert [manager.reached_preemption(step) for step in (3, 4)] == [True, False]
    assert not save(manager, 4)
    request.request("again")
    assert save(manager, 5)
    assert committed(tmp_path / "steps") == [1, 3, 5]


def test_it_leaves_orbax_as_it_was(enable: Enable) -> None:
    before = dict(vars(ocp.CheckpointManager))
    enable()
    assert dict(vars(ocp.CheckpointManager)) != before
    autocheckpoint.disable()
    assert dict(vars(ocp.CheckpointManager)) == before
    assert autocheckpoint.current() is None
    assert not AutocheckpointPolicy().should_save(None, [], context=None)


def test_a_policy_of_the_program_s_own_may_say_it_and_need_not(
    enable: Enable, make: Make, tmp_path: Path
) -> None:
    never = ocp.checkpoint_managers.FixedIntervalPolicy(10**6)
    explicit = ocp.checkpoint_managers.AnySavePolicy([never, AutocheckpointPolicy()])
    request, manager = enable(), make(save_decision_policy=explicit)
    assert not manager.should_save(1)
    request.request("somebody")
    assert manager.should_save(1)
    assert save(manager, 1)
    silent = make(save_decision_policy=never)
    request.request("somebody")
    assert not silent.should_save(2)
    assert save(silent, 2)
    assert committed(tmp_path / "steps") == [1, 2]


def test_the_checkpointer_of_orbax_v1_saves_the_step_too(enable: Enable, tmp_path: Path) -> None:
    never = v1.training.save_decision_policies.FixedIntervalPolicy(10**6)
    request = enable()
    with v1.training.Checkpointer(tmp_path / "steps", save_decision_policy=never) as checkpointer:
        assert not checkpointer.save(1, {"x": np.zeros(4)})
        request.request("somebody")
        assert checkpointer.save(2, {"x": np.zeros(4)})
        assert committed(tmp_path / "steps") == [2]


def test_a_save_that_fails_is_raised_and_the_next_step_is_saved(
    enable: Enable, make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, manager = enable(exit_after=True), make()
    request.request("somebody")

    async def broken(_path: object) -> None:
        raise OSError("no space")

    with monkeypatch.context() as patch:
        patch.setattr(atomicity.AtomicRenameTemporaryPath, "finalize", broken)
        with pytest.raises(OSError, match="no space"):
            save(manager, 1)
    assert request.requested
    with pytest.raises(SystemExit) as ended:
        save(manager, 2)
    assert ended.value.code == EXIT_SAVED
    assert committed(tmp_path / "steps") == [2]


def test_a_save_that_orbax_calls_done_is_looked_for_in_the_storage(
    enable: Enable, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, manager = enable(exit_after=True), make()
    request.request("somebody")

    async def forget(_path: object) -> None:
        pass

    monkeypatch.setattr(atomicity.AtomicRenameTemporaryPath, "finalize", forget)
    with pytest.raises(NotCommittedError, match="step 1 is not in"):
        save(manager, 1)
    assert request.requested


def test_a_step_that_the_program_s_rules_would_delete_stays_until_they_keep_a_later_one(
    enable: Enable, make: Make, tmp_path: Path
) -> None:
    request = enable()
    manager = make(max_to_keep=1, best_fn=lambda metrics: metrics["score"], best_mode="max")

    def save_scored(step: int, score: float, force: bool = False) -> bool:
        args = ocp.args.StandardSave({"x": np.full(4, step, np.float32)})
        saved = manager.save(step, args=args, metrics={"score": score}, force=force)
        manager.wait_until_finished()
        return bool(saved)

    assert save_scored(1, 10.0)
    request.request("somebody")
    assert save_scored(2, 1.0)
    assert committed(tmp_path / "steps") == [1, 2]
    assert manager.latest_step() == 2
    assert save_scored(3, 2.0, force=True)
    assert committed(tmp_path / "steps") == [1, 2]
    assert save_scored(4, 20.0, force=True)
    assert committed(tmp_path / "steps") == [4]


def test_training_goes_on_when_a_save_has_had_its_time(
    enable: Enable, make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, manager = enable(timeout_s=0.3), make()
    go_on, finalize = threading.Event(), atomicity.AtomicRenameTemporaryPath.finalize

    async def late(self: Any) -> None:
        go_on.wait()
        await finalize(self)

    monkeypatch.setattr(atomicity.AtomicRenameTemporaryPath, "finalize", late)
    request.request("somebody")
    assert save(manager, 1)
    assert committed(tmp_path / "steps") == []
    assert not request.requested
    go_on.set()
    # With time enough.
    enable().request("somebody else")
    assert save(manager, 2)
    assert committed(tmp_path / "steps") == [1, 2]


@pytest.mark.parametrize("options", [{}, {"read_only": True}])
def test_a_step_that_orbax_refuses_leaves_the_request_for_the_next(
    options: dict[str, bool],
    enable: Enable,
    make: Make,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with make() as earlier:
        save(earlier, 10)
    request, manager = enable(), make(**options)
    request.request("somebody")
    with caplog.at_level(logging.WARNING, "pathways_elastic"):
        assert not save(manager, 5)
    assert "step 5 can't be saved" in caplog.text
    assert request.requested
    assert committed(tmp_path / "steps") == [10]


def test_a_loop_in_another_thread_ends_the_whole_program(
    enable: Enable, make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[int] = []
    monkeypatch.setattr(autocheckpoint, "_end", ended.append)
    request, manager = enable(exit_after=True), make()
    request.request("somebody")
    thread = threading.Thread(target=save, args=(manager, 1))
    thread.start()
    thread.join()
    assert ended == [EXIT_SAVED]
    assert committed(tmp_path / "steps") == [1]


def test_a_program_whose_own_cleaning_up_hangs_is_ended(
    enable: Enable, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    statuses: queue.SimpleQueue[int] = queue.SimpleQueue()
    monkeypatch.setattr(autocheckpoint, "_end", statuses.put)
    monkeypatch.setattr(autocheckpoint_latch, "END_WITHIN_S", 0.1)
    request, manager = enable(exit_after=True), make()
    request.request("somebody")
    # Here, the cleaning up is the rest of this test.
    with pytest.raises(SystemExit):
        save(manager, 1)
    assert statuses.get(timeout=60) == EXIT_SAVED
