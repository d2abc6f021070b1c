# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What a program sees when slice 1 of two is lost, comes back, and is replaced."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from pathwaysutils.elastic import elastic
from tests.emulator.proxy.clients.common import error_of, mesh_of, on, tell, wait_for

X = np.arange(32, dtype=np.float32).reshape(8, 4)
LOST = "DATA_LOSS: slice 1: host 0 ended: killed"


def put(mesh: Mesh) -> jax.Array:
    """An array over all chips of a mesh."""
    array: jax.Array = jax.device_put(X, on(mesh, ("slice", "chip")))
    array.block_until_ready()
    return array


def check_loss() -> None:
    """Data on the lost slice is an error in every use; other data is not touched."""
    first, second, both = mesh_of(0), mesh_of(1), mesh_of(0, 1)
    on_first, on_second, on_both = put(first), put(second), put(both)
    double = jax.jit(lambda x: x * 2)
    for array in (on_first, on_second, on_both):
        jax.block_until_ready(double(array))
    assert elastic.get_active_slice_indices() == {0, 1}
    tell("ready")
    wait_for("lost")

    for array in (on_second, on_both):
        assert LOST in error_of(partial(np.asarray, array))
        # Programs that ran before, and new ones, for which the client knows no results yet.
        for function in (double, jax.jit(lambda x: x * 3)):
            result = function(array)
            assert LOST in error_of(result.block_until_ready)
    arrived = jax.device_put(X, on(second, ("slice", "chip")))
    assert LOST in error_of(lambda: jax.block_until_ready(arrived))
    moved = jax.device_put(on_second, on(first, ("slice", "chip")))
    assert LOST in error_of(lambda: jax.block_until_ready(moved))
    to_dead = jax.device_put(on_first, on(second, ("slice", "chip")))
    assert LOST in error_of(lambda: jax.block_until_ready(to_dead))
    assert LOST in error_of(lambda: np.asarray(on_second.addressable_shards[0].data))

    np.testing.assert_array_equal(on_first, X)
    np.testing.assert_array_equal(double(on_first), X * 2)
    np.testing.assert_array_equal(jax.jit(lambda x: x @ x.T)(on_first), X @ X.T)
    assert elastic.get_active_slice_indices() == {0}
    tell("seen")

    wait_for("revived")
    assert elastic.get_active_slice_indices() == {0, 1}
    assert LOST in error_of(lambda: jax.block_until_ready(on_both + 0))
    new = put(both)
    np.testing.assert_array_equal(double(new), X * 2)
    np.testing.assert_array_equal(on_first, X)
    tell("seen")

    wait_for("replaced")
    replaced = error_of(lambda: np.asarray(new))
    assert "DATA_LOSS: slice 1" in replaced, replaced
    assert "incarnation 3" in replaced, replaced
    np.testing.assert_array_equal(put(both), X)
    tell("seen")

    kept = put(both)
    tell("ready")
    wait_for("unsettled")
    np.testing.assert_array_equal(kept, X)
    np.testing.assert_array_equal(double(kept), X * 2)
    assert jnp.sum(kept) == X.sum()
    tell("seen")


if __name__ == "__main__":
    check_loss()
    tell("done")
