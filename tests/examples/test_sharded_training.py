# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Layout over slices, and checkpoints between layouts."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import Mesh

import sharded_training as sharded
from char_transformer import ModelConfig, load_text

RUN = sharded.Run(
    ModelConfig(layers=2, width=16, heads=4, seq_len=12, dropout=0.25), global_batch=6, seed=0
)
TEXT = load_text(50_000)


def slices(*indices: int, size: int = 2) -> dict[int, list[jax.Device]]:
    devices = jax.devices()
    return {i: devices[i * size : (i + 1) * size] for i in indices}


def losses(trainer: sharded.Trainer, state: sharded.State, mesh: Mesh, steps: range) -> list[float]:
    found = []
    for step in steps:
        state, loss = trainer.step(state, TEXT, step, mesh)
        found.append(float(loss))
    return found


@pytest.fixture(scope="module")
def trainer() -> sharded.Trainer:
    """One for all tests: compiling is most of what they cost."""
    return sharded.Trainer(RUN)


@pytest.fixture(scope="module")
def initial(trainer: sharded.Trainer) -> sharded.State:
    """The initial state on the host."""
    state: sharded.State = jax.device_get(trainer.init(sharded.build_mesh(slices(0, 1, 2))))
    return state


def put(state: sharded.State, mesh: Mesh) -> sharded.State:
    """``state`` laid out on ``mesh``."""
    laid_out: sharded.State = jax.tree.map(
        lambda x: jax.device_put(x, sharded.shard_within_slice(np.shape(x), mesh)), state
    )
    return laid_out


def device(id: int, **attributes: Any) -> Any:
    return SimpleNamespace(id=id, **attributes)


def test_devices_are_grouped_by_slice_whatever_their_order() -> None:
    devices = [device(i, slice_index=s) for i, s in [(5, 1), (0, 2), (4, 1), (1, 2), (3, 0)]]
    grouped = sharded.group_by_slice(devices)
    assert {s: [d.id for d in ds] for s, ds in grouped.items()} == {0: [3], 1: [4, 5], 2: [0, 1]}
    assert list(grouped) == [0, 1, 2]


@pytest.mark.parametrize("attributes", [{}, {"slice_index": None}])
def test_devices_without_a_slice_are_one_slice(attributes: dict[str, None]) -> None:
    devices = [device(i, **attributes) for i in range(3)]
    assert sharded.group_by_slice(devices) == {0: devices}


def test_mesh_has_a_row_for_each_slice() -> None:
    mesh = sharded.build_mesh(slices(2, 0))
    assert dict(mesh.shape) == {"slice": 2, "fsdp": 2}
    assert [d.id for d in mesh.devices[1]] == [4, 5]


@pytest.mark.parametrize("uneven", [{}, {0: [0, 1], 1: [2]}])
def test_mesh_of_no_or_uneven_slices_is_refused(uneven: Any) -> None:
    with pytest.raises(ValueError, match="same number of devices, got"):
        sharded.build_mesh(uneven)


@pytest.mark.parametrize(
    ("shape", "spec"),
    [
        ((), ()),
        ((3,), (None,)),
        ((16,), ("fsdp",)),
        ((2, 16, 48), (None, None, "fsdp")),
        ((256, 16), ("fsdp", None)),
        ((4, 5), ("fsdp", None)),
    ],
)
def test_largest_axis_that_divides_is_sharded(shape: tuple[int, ...], spec: tuple[Any]) -> None:
    mesh = sharded.build_mesh(slices(0, 1, size=4))
    assert tuple(sharded.shard_within_slice(shape, mesh).spec) == spec


def test_batch_is_padded_to_all_devices() -> None:
    mesh = sharded.build_mesh(slices(0, 1, 2))
    assert [sharded.padded_rows(n, mesh) for n in (1, 6, 7)] == [6, 6, 12]


def test_state_is_sharded_within_a_slice_and_replicated_over_slices(
    trainer: sharded.Trainer,
) -> None:
    mesh = sharded.build_mesh(slices(0, 1, 2))
    embedding = trainer.init(mesh)["params"]["embedding"]
    assert embedding.sharding.num_devices == 6
    assert {s.data.shape for s in embedding.addressable_shards} == {(128, 16)}


def test_losses_do_not_depend_on_the_slices(
    trainer: sharded.Trainer, initial: sharded.State
) -> None:
    reference, mesh = sharded.build_mesh(slices(0, 1, 2)), sharded.build_mesh(slices(1, 2))
    expected = losses(trainer, put(initial, reference), reference, range(4))
    found = losses(trainer, put(initial, mesh), mesh, range(4))
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert len(set(expected)) == 4


def test_step_donates_the_state(trainer: sharded.Trainer, initial: sharded.State) -> None:
    mesh = sharded.build_mesh(slices(0, 1, 2))
    state = put(initial, mesh)
    after, _ = trainer.step(state, TEXT, 0, mesh)
    assert all(x.is_deleted() for x in jax.tree.leaves(state["params"]))
    assert int(after["step"]) == 1


def test_checkpoint_is_restored_on_other_slices(
    trainer: sharded.Trainer, initial: sharded.State, tmp_path: Path
) -> None:
    before, after = sharded.build_mesh(slices(0, 1, 2)), sharded.build_mesh(slices(1, 2))
    state, _ = trainer.step(put(initial, before), TEXT, 0, before)
    with sharded.Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, state)
        checkpoints.save(1, state)  # saved already: nothing to do
    with sharded.Checkpoints(tmp_path) as checkpoints:
        restored, step, was_restored = checkpoints.restore_or_init(trainer, after)
    assert (step, was_restored) == (1, True)
    assert {d.id for x in jax.tree.leaves(restored) for d in x.devices()} == {2, 3, 4, 5}
    expected = losses(trainer, state, before, range(1, 3))
    np.testing.assert_allclose(losses(trainer, restored, after, range(1, 3)), expected, rtol=1e-4)


def test_checkpoint_that_was_not_committed_is_not_restored(
    trainer: sharded.Trainer, initial: sharded.State, tmp_path: Path
) -> None:
    mesh = sharded.build_mesh(slices(0, 1, 2))
    with sharded.Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(4, put(initial, mesh))
        checkpoints.save(9, put(initial, mesh))
    # As a process leaves it that is killed while it writes.
    (tmp_path / "9").rename(tmp_path / "9.orbax-checkpoint-tmp")
    with sharded.Checkpoints(tmp_path) as checkpoints:
        _, step, restored = checkpoints.restore_or_init(trainer, mesh)
    assert (step, restored) == (4, True)


def test_every_use_of_the_manager_is_shielded(
    trainer: sharded.Trainer, initial: sharded.State, tmp_path: Path
) -> None:
    shields = []

    @contextlib.contextmanager
    def shield() -> Iterator[None]:
        shields.append("up")
        yield
        shields.append("down")

    mesh = sharded.build_mesh(slices(0, 1, 2))
    with sharded.Checkpoints(tmp_path, shield) as checkpoints:
        checkpoints.save(1, put(initial, mesh))
        checkpoints.wait()
        checkpoints.restore_or_init(trainer, mesh)
    assert shields == ["up", "down"] * 5  # made, saved, waited for, restored, closed


def test_error_of_the_attempt_is_not_masked_by_closing(tmp_path: Path) -> None:
    with pytest.raises(LookupError, match="mine"), sharded.Checkpoints(tmp_path):
        raise LookupError("mine")


def test_checkpoint_directory_of_another_run_is_told(tmp_path: Path) -> None:
    directory = tmp_path / "new"
    assert sharded.check_same_run(directory, RUN) is None
    assert sharded.check_same_run(directory, RUN) is None
    other = sharded.Run(ModelConfig(layers=3, width=16, seq_len=12, dropout=0.25), 6, 1)
    differs = sharded.check_same_run(directory, other)
    assert differs == "layers 2 there, 3 here; seed 0 there, 1 here"
    assert json.loads((directory / "run.json").read_text())["layers"] == 2
