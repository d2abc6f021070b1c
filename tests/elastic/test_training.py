# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Whole training loops that slices are taken from, and given back to."""

import gc
import logging
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from jax import monitoring
from jax.sharding import Mesh
from tests.elastic import toy
from tests.elastic.conftest import wait_until
from tests.elastic.driving import MakeManager, answering, down, lose, snapshot_of
from tests.elastic.toy import State

import elastic_soak
from elastic_service import Service
from pathways_elastic.manager import ElasticUtils, Manager

FINAL_STEP = 24


def initialize_mesh(manager: Manager) -> Mesh:
    return toy.mesh_of(manager.good_slice_to_devices)


def initialize_training_loop(
    mesh: Mesh, at_step: Callable[[int], None]
) -> tuple[State, int, Callable[[State], State], Callable[[int], None]]:
    def train_step(state: State) -> State:
        # A step whose result nobody ever reads can't fail.
        updated = toy.update(state)
        jax.block_until_ready(updated)
        return updated

    return toy.new_state(mesh), 0, train_step, at_step


# From here to the end of train_loop it is the documented program, but for the import, the call of
# other_variables, and the arguments of its two functions, which it leaves open.
def elastic_handler(elastic_utils: ElasticUtils, *_args: Any, **kwargs: Any) -> Any:
    mesh = initialize_mesh(**kwargs["mesh_kwargs"])
    initial_state, _, jitted_train_step, other_variables = initialize_training_loop(
        mesh, **kwargs["initialize_training_loop_kwargs"]
    )

    step, snapshot = elastic_utils.get_next_snapshot()
    state = initial_state.replace(**snapshot)

    return state, step, mesh, jitted_train_step, other_variables


def train_loop(
    final_step: int,
    elastic_manager: Manager,
    mesh_kwargs: dict[str, Any],
    initialize_training_loop_kwargs: dict[str, Any],
    count_the_step: bool = False,
) -> State:
    mesh = initialize_mesh(**mesh_kwargs)
    initial_state, initial_step, jitted_train_step, other_variables = initialize_training_loop(
        mesh, **initialize_training_loop_kwargs
    )
    state = initial_state

    step = initial_step
    while step < final_step:
        try:
            other_variables(step)
            state = jitted_train_step(state)

            elastic_manager.maybe_snapshot(step=step, snapshot=state)
            handler_returns = elastic_manager.maybe_reshard_up(
                step=step,
                snapshot=state,
                elastic_handler=elastic_handler,
                handler_args=(),
                handler_kwargs={
                    "mesh_kwargs": mesh_kwargs,
                    "initialize_training_loop_kwargs": initialize_training_loop_kwargs,
                },
            )
            if handler_returns:
                state, step, mesh, jitted_train_step, other_variables = handler_returns
            step += 1
        except jax.errors.JaxRuntimeError as error:
            handler_returns = elastic_manager.maybe_reshard_down(
                error=error,
                elastic_handler=elastic_handler,
                handler_args=(),
                handler_kwargs={
                    "mesh_kwargs": mesh_kwargs,
                    "initialize_training_loop_kwargs": initialize_training_loop_kwargs,
                },
            )
            if handler_returns:
                state, step, mesh, jitted_train_step, other_variables = handler_returns
            # Not in the documented program.
            if count_the_step:
                step += 1

    return state


class Losses:
    """Kills a slice at each of some steps, once, and waits until the program can't but notice."""

    def __init__(self, service: Service, plan: dict[int, int]) -> None:
        self._service = service
        self._plan = dict(plan)

    def __call__(self, step: int) -> None:
        victim = self._plan.pop(step, None)
        if victim is not None:
            self._service.kill(victim)
            wait_until(lambda: victim not in answering(), f"slice {victim} is lost")


@pytest.mark.parametrize(("count_the_step", "repeated"), [(False, 2), (True, 0)])
def test_the_documented_loop_repeats_one_update_for_each_loss(
    service: Service, make_manager: MakeManager, count_the_step: bool, repeated: int
) -> None:
    """Its except branch does not count the step of the snapshot that it has restored."""
    manager = make_manager(
        snapshot_period=4,
        snapshot_buffer_size=1,
        reshard_check_period=5,
        max_elastic_down_event_count=10,
        max_reshard_retry_count=3,
    )
    losses = Losses(service, {10: 1, 17: 2})
    state = train_loop(
        FINAL_STEP, manager, {"manager": manager}, {"at_step": losses}, count_the_step
    )
    assert manager.down_event_count == 2
    assert toy.count_of(state) == FINAL_STEP + repeated


def test_the_documented_loop_takes_slices_back(service: Service, make_manager: MakeManager) -> None:
    manager = make_manager(snapshot_period=4, reshard_check_period=2)
    losses = Losses(service, {6: 0})

    def at_step(step: int) -> None:
        losses(step)
        if manager.missing_slice_indices and step >= 8:
            service.revive(0)
            wait_until(lambda: 0 in answering(), "slice 0 is back")

    state = train_loop(200, manager, {"manager": manager}, {"at_step": at_step}, True)
    assert manager.good_slice_indices == {0, 1, 2}
    assert toy.count_of(state) == 200


@pytest.mark.timeout(600)
def test_a_run_with_ten_kills_of_every_kind_ends_as_one_without(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    """In a step, a snapshot, a handler, while slices are taken in; two at once, the same twice."""
    caplog.set_level(logging.ERROR, "pathways_elastic")
    outcome = elastic_soak.soak(service, runs=1, steps=40, seed=7, moments=12)
    assert outcome.failures == 0
    assert outcome.kills.total() >= 10, outcome.kills


class Compilations:
    """Counts what XLA is asked to compile."""

    def __init__(self) -> None:
        self.count = 0
        monitoring.register_event_duration_secs_listener(self._listen)

    def _listen(self, event: str, duration_secs: float, **_: Any) -> None:
        assert duration_secs >= 0
        self.count += event == "/jax/core/compile/backend_compile_duration"

    def stop(self) -> None:
        monitoring.unregister_event_duration_listener(self._listen)


def test_a_mesh_that_was_seen_before_needs_no_compilation(
    service: Service, make_manager: MakeManager
) -> None:
    manager = make_manager()
    counts = []

    def handler(utils: ElasticUtils) -> Any:
        mesh = toy.mesh_of(utils.good_slice_to_devices)
        step = utils.once_per_mesh(
            mesh, lambda: jax.jit(lambda s: s.replace(count=s["count"] + 1), donate_argnums=0)
        )
        _, state = utils.get_next_snapshot()
        return step(state), step

    state: Any = snapshot_of(manager, 0)
    compilations = Compilations()
    try:
        for _ in range(3):
            before = compilations.count
            state, step = down(manager, lose(service, manager, 0), handler)
            assert manager.good_slice_indices == {1, 2}
            snapshot_of(manager, 0, step(state))
            service.revive(0)
            wait_until(lambda: 0 in answering(), "slice 0 is back")
            state, step = down(manager, toy.data_loss(), handler)
            assert manager.good_slice_indices == {0, 1, 2}
            state = snapshot_of(manager, 0, step(state))
            counts.append(compilations.count - before)
    finally:
        compilations.stop()
    assert counts[0] > 0
    assert counts[1:] == [0, 0]


def test_a_hundred_losses_leave_no_array_and_no_thread_behind(
    service: Service, make_manager: MakeManager
) -> None:
    manager = make_manager(max_elastic_down_event_count=1000)
    handled: list[Any] = [snapshot_of(manager, 0)]
    live: list[int] = []
    mib: list[float] = []

    def fails(state: State) -> None:
        # As in a real loop, the frames of the error hold arrays.
        activations = toy.update(jax.tree.map(lambda x: x + 1, state))
        raise toy.data_loss(toy.count_of(activations))

    for event in range(100):
        state = handled.pop()
        if event % 10 == 0:
            # The other events are of slices that are back at once.
            error = lose(service, manager, 1)
            service.revive(1)
            wait_until(lambda: 1 in answering(), "slice 1 is back")
            handled.append(down(manager, error)[0])
        else:
            try:
                fails(state)
            except jax.errors.JaxRuntimeError as raised:
                handled.append(down(manager, raised)[0])
        del state
        snapshot_of(manager, 0, handled[0])
        gc.collect()
        live.append(sum(not array.is_deleted() for array in jax.live_arrays()))
        mib.append(service.proxy().memory_info().rss / 2**20)
    assert manager.down_event_count == 100
    assert live[-1] <= live[20]
    # What XLA and the allocators keep for themselves does not grow by the event.
    assert np.median(mib[-10:]) - np.median(mib[20:30]) < 30, mib
