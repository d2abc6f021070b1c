# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Where snapshots live, what they cost, and onto what they can be restored."""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from tests.elastic import toy
from tests.elastic.conftest import wait_until
from tests.elastic.driving import MakeManager, down, lose, snapshot_of

from elastic_service import Service
from pathways_elastic import restoring, snapshots
from pathways_elastic.detection import slices_of
from pathways_elastic.errors import SnapshotError
from pathways_elastic.manager import ElasticUtils, Manager
from pathways_elastic.snapshots import Snapshot

WEIGHTS = np.arange(24, dtype=np.float32).reshape(8, 3)


@pytest.fixture
def slices(service: Service) -> dict[int, list[jax.Device]]:
    assert service.slices == [0, 1, 2]
    return slices_of(jax.devices())


def put(mesh: Mesh, value: Any, *axes: Any) -> Any:
    return jax.device_put(value, NamedSharding(mesh, PartitionSpec(*axes)))


def wait_for_newest(manager: Manager, step: int) -> None:
    wait_until(lambda: manager.snapshots[0].step == step, f"the snapshot of step {step} is whole")


def taken(state: Any, step: int = 0) -> Snapshot:
    return snapshots.stage(step, state).collect()


class TestWhereTheyAre:
    def test_what_other_slices_have_too_is_in_the_host_memory_of_slices(
        self, slices: dict[int, list[jax.Device]]
    ) -> None:
        info = taken({"w": put(toy.mesh_of(slices), WEIGHTS, "fsdp")}).info
        assert info.slices == {0, 1, 2}
        assert (info.bytes_on_slices, info.bytes_in_client) == (3 * WEIGHTS.nbytes, 0)
        assert info.safe

    def test_of_what_all_devices_have_each_slice_keeps_one(
        self, slices: dict[int, list[jax.Device]]
    ) -> None:
        info = taken({"w": put(toy.mesh_of(slices), WEIGHTS)}).info
        assert info.bytes_on_slices == 3 * WEIGHTS.nbytes

    def test_what_is_divided_over_slices_is_in_the_client(
        self, slices: dict[int, list[jax.Device]]
    ) -> None:
        two = {index: slices[index] for index in (0, 1)}
        info = taken({"w": put(toy.mesh_of(two), WEIGHTS, "slice")}).info
        assert info.slices == set()
        assert (info.bytes_on_slices, info.bytes_in_client) == (0, WEIGHTS.nbytes)
        assert info.safe

    def test_what_one_slice_has_alone_is_in_the_client(
        self, slices: dict[int, list[jax.Device]]
    ) -> None:
        info = taken({"w": put(toy.mesh_of({2: slices[2]}), WEIGHTS, "fsdp")}).info
        assert (info.bytes_on_slices, info.bytes_in_client) == (0, WEIGHTS.nbytes)

    def test_each_array_is_where_it_is_safe(self, slices: dict[int, list[jax.Device]]) -> None:
        mesh = toy.mesh_of(slices)
        state = {"a": put(mesh, WEIGHTS, "fsdp"), "b": put(mesh, np.ones(12), ("slice", "fsdp"))}
        info = taken(state).info
        assert info.bytes_on_slices == 3 * WEIGHTS.nbytes
        assert info.bytes_in_client == state["b"].nbytes

    def test_the_manager_tells_where_each_one_is(self, make_manager: MakeManager) -> None:
        manager = make_manager()
        snapshot_of(manager, 0)
        snapshot_of(manager, 2)
        assert [(info.step, info.slices) for info in manager.snapshots] == [
            (2, {0, 1, 2}),
            (0, {0, 1, 2}),
        ]

    def test_copies_that_only_one_slice_has_left_are_moved_to_the_client(
        self, service: Service, make_manager: MakeManager
    ) -> None:
        manager = make_manager(min_slices=1)
        snapshot_of(manager, 0)
        down(manager, lose(service, manager, 0, 1))
        wait_until(lambda: all(info.safe for info in manager.snapshots), "the snapshot is safe")
        assert [info.slices for info in manager.snapshots] == [frozenset()]
        # So the loss of the last slice costs nothing more.
        service.revive(0)
        state, step = down(manager, lose(service, manager, 2))
        assert manager.good_slice_indices == {0}
        assert (step, toy.count_of(state)) == (0, 0)

    def test_a_snapshot_that_went_with_its_slices_is_not_handed_out(
        self, slices: dict[int, list[jax.Device]], service: Service
    ) -> None:
        two = {index: slices[index] for index in (0, 1)}
        snapshot = taken({"w": put(toy.mesh_of(two), WEIGHTS, "fsdp")})
        service.kill(0)
        wait_until(lambda: snapshot.kept_on({0, 1, 2}) != snapshot, "the loss shows")
        kept = snapshot.kept_on({0, 1, 2})
        assert kept is not None
        assert kept.info.slices == {1}
        assert not kept.info.safe
        assert kept.kept_on({0, 2}) is None


class TestWhatTheyHold:
    def test_every_kind_of_leaf_comes_back_as_it_was(
        self, slices: dict[int, list[jax.Device]]
    ) -> None:
        mesh = toy.mesh_of(slices)
        state = {
            "bfloat16": put(mesh, WEIGHTS.astype(jnp.bfloat16), "fsdp"),
            "bool": put(mesh, np.array([True, False])),
            "scalar": put(mesh, np.int32(7)),
            "empty": put(mesh, np.zeros((0, 4), np.float32)),
            "key": put(mesh, jax.random.key(3)),
            "keys": put(mesh, jax.random.split(jax.random.key(3), 4), "fsdp"),
            "uncommitted": jnp.arange(3),
            "numpy": np.arange(5),
            "number": 2.5,
            "none": None,
            "nested": (put(mesh, WEIGHTS), [4]),
        }
        restored = restoring.restore(taken(state), slices)
        assert str(jax.tree.structure(restored)) == str(jax.tree.structure(state))
        for (path, was), now in zip(
            jax.tree_util.tree_leaves_with_path(state), jax.tree.leaves(restored), strict=True
        ):
            assert type(now) is type(was), path
            if isinstance(was, jax.Array):
                assert now.dtype == was.dtype, path
                assert now.committed == was.committed, path
                assert now.sharding == was.sharding, path
            if isinstance(was, jax.Array) and jnp.issubdtype(was.dtype, jax.dtypes.prng_key):
                was, now = jax.random.key_data(was), jax.random.key_data(now)
            np.testing.assert_array_equal(np.asarray(now), np.asarray(was), str(path))

    def test_a_numpy_array_that_the_program_changes_later_is_kept_as_it_was(self) -> None:
        array = np.zeros(3)
        snapshot = taken({"x": array})
        array += 1
        restored = restoring.restore(snapshot, {})
        restored["x"] += 5
        np.testing.assert_array_equal(restoring.restore(snapshot, {})["x"], np.zeros(3))

    def test_the_state_can_be_donated_at_once(self, slices: dict[int, list[jax.Device]]) -> None:
        state = toy.new_state(toy.mesh_of(slices))
        staged = snapshots.stage(0, state)
        for _ in range(5):
            state = toy.update(state)
        restored = restoring.restore(staged.collect(), slices)
        np.testing.assert_array_equal(np.asarray(restored["sums"]), np.zeros(toy.WIDTH))
        assert toy.count_of(state) == 5

    def test_what_is_restored_can_be_donated_and_restored_again(
        self, slices: dict[int, list[jax.Device]]
    ) -> None:
        snapshot = taken(toy.new_state(toy.mesh_of(slices)))
        for _ in range(3):
            state = toy.update(restoring.restore(snapshot, slices))
            assert toy.count_of(state) == 1


class TestOntoOtherDevices:
    @pytest.mark.parametrize("chosen", [[0], [1, 2], [0, 2], [0, 1, 2]])
    @pytest.mark.parametrize("taken_on", [[0, 1], [0, 1, 2], [1]])
    @pytest.mark.parametrize("axes", [("fsdp",), (), (None, "fsdp"), (("slice", "fsdp"),)])
    def test_the_layout_is_as_it_was_with_as_many_slices_as_there_are(
        self,
        slices: dict[int, list[jax.Device]],
        taken_on: list[int],
        chosen: list[int],
        axes: Sequence[Any],
    ) -> None:
        value = np.arange(24 * 12, dtype=np.float32).reshape(24, 12)
        before = toy.mesh_of({index: slices[index] for index in taken_on})
        good = {index: slices[index] for index in chosen}
        restored = restoring.restore(taken({"w": put(before, value, *axes)}), good)
        wanted = NamedSharding(toy.mesh_of(good), PartitionSpec(*axes))
        assert restored["w"].sharding == wanted
        assert restored["w"].sharding.memory_kind == "device"
        np.testing.assert_array_equal(np.asarray(restored["w"]), value)

    def test_another_layout_is_used_if_it_is_given(
        self, slices: dict[int, list[jax.Device]]
    ) -> None:
        snapshot = taken({"w": put(toy.mesh_of(slices), WEIGHTS, "fsdp")})
        flat = Mesh(np.array(slices[0][:2] + slices[2][2:]), ("x",))
        like = {
            "w": jax.ShapeDtypeStruct(
                WEIGHTS.shape, WEIGHTS.dtype, sharding=NamedSharding(flat, PartitionSpec("x"))
            )
        }
        restored = restoring.restore(snapshot, {0: slices[0], 2: slices[2]}, like)
        assert restored["w"].sharding == like["w"].sharding
        np.testing.assert_array_equal(np.asarray(restored["w"]), WEIGHTS)

    def test_a_layout_of_another_structure_is_refused(
        self, slices: dict[int, list[jax.Device]]
    ) -> None:
        snapshot = taken({"w": put(toy.mesh_of(slices), WEIGHTS)})
        with pytest.raises(SnapshotError, match="like must have the structure of the snapshot"):
            restoring.restore(snapshot, slices, {"v": WEIGHTS})

    def test_a_layout_that_can_not_be_guessed_is_asked_for(
        self, slices: dict[int, list[jax.Device]]
    ) -> None:
        # Slices lie along no axis: devices of both are in each row.
        mixed = np.array([slices[0] + slices[1]]).reshape(2, 2, 2).transpose(1, 0, 2).reshape(2, 4)
        mixed[1] = mixed[1][::-1]
        snapshot = taken({"w": put(Mesh(mixed, ("a", "b")), WEIGHTS, "b")})
        with pytest.raises(SnapshotError, match=r"give get_next_snapshot\(like=…\)"):
            restoring.restore(snapshot, {0: slices[0]})

    def test_what_the_slices_left_can_not_divide_is_refused(
        self, slices: dict[int, list[jax.Device]]
    ) -> None:
        two = {index: slices[index] for index in (0, 1)}
        snapshot = taken({"w": put(toy.mesh_of(two), np.ones(2), "slice")})
        with pytest.raises(SnapshotError, match="does not fit onto slices"):
            restoring.restore(snapshot, slices)

    def test_the_handler_chooses_the_layout(self, make_manager: MakeManager) -> None:
        manager = make_manager()
        snapshot_of(manager, 0)

        def handler(utils: ElasticUtils) -> Any:
            assert utils.good_slice_indices == {0, 1, 2}
            mesh = toy.mesh_of(utils.good_slice_to_devices)
            everywhere = NamedSharding(mesh, PartitionSpec())
            fresh = toy.new_state(mesh)
            like = {name: jax.device_put(value, everywhere) for name, value in fresh.items()}
            return utils.get_next_snapshot(toy.State(like))

        _, state = down(manager, toy.data_loss(), handler)
        assert state["sums"].sharding.spec == PartitionSpec()


class TestWhatTheyCost:
    def test_a_step_without_one_costs_microseconds(self, make_manager: MakeManager) -> None:
        manager = make_manager(snapshot_period=1_000_000)
        state = snapshot_of(manager, 0)

        def call_all(steps: int) -> None:
            for _ in range(steps):
                manager.maybe_snapshot(step=1, snapshot=state)

        took = []
        for _ in range(20):
            start = time.perf_counter()
            call_all(200)
            took.append((time.perf_counter() - start) / 200)
        assert min(took) < 20e-6, took

    def test_a_step_with_one_does_not_wait_for_the_state(
        self, make_manager: MakeManager, slow: Callable[[Any], Any]
    ) -> None:
        manager = make_manager(snapshot_period=1)
        state = snapshot_of(manager, 0)
        jax.block_until_ready(slow(state))
        start = time.perf_counter()
        jax.block_until_ready(slow(state))
        computing_s = time.perf_counter() - start
        blocked = []
        for step in range(2, 7):
            state = slow(toy.new_state(toy.mesh_of(manager.good_slice_to_devices)))
            start = time.perf_counter()
            manager.maybe_snapshot(step=step, snapshot=state)
            blocked.append(time.perf_counter() - start)
            toy.update(state)  # Donated while the copy still waits for its data.
            wait_for_newest(manager, step)
        assert statistics.median(blocked) < computing_s / 3, (blocked, computing_s)

    @pytest.fixture
    def slow(self) -> Callable[[Any], Any]:
        """A computation of some tenths of a second."""

        @jax.jit
        def compute(state: Any) -> Any:
            def turn(_: int, x: jax.Array) -> jax.Array:
                return jnp.tanh(x @ x)

            big = jnp.full((128, 128), 1e-3 * (1 + state["count"]))
            done = jax.lax.fori_loop(0, 300, turn, big)
            return toy.State(
                count=state["count"] + jnp.int32(jnp.isnan(done).sum()), sums=state["sums"]
            )

        return compute
