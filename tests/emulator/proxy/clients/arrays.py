# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Arrays: to devices, between them, back, their parts, types, memories and ends."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from tests.emulator.proxy.clients.common import error_of, mesh_of, on, tell

X = np.arange(64, dtype=np.float32).reshape(8, 8)


def check_devices() -> None:
    """Slices, coordinates and platform are those of a Pathways proxy."""
    devices = jax.devices()
    assert [device.slice_index for device in devices] == [0] * 4 + [1] * 4
    assert [tuple(device.coords) for device in devices[:4]] == [
        (0, 0, 0),
        (1, 0, 0),
        (0, 1, 0),
        (1, 1, 0),
    ]
    assert {device.core_on_chip for device in devices} == {0}
    assert {device.platform for device in devices} == {"cpu"}
    assert devices[0].client.runtime_type == "proxy/pathways"
    assert jax.process_count() == 1


def check_shardings() -> None:
    """Every way through shardings, meshes and slices keeps the values."""
    mesh = mesh_of(0, 1)
    tiled = jax.device_put(X, on(mesh, "slice", "chip"))
    np.testing.assert_array_equal(tiled, X)
    columns = jax.device_put(tiled, on(mesh, "chip", "slice"))
    np.testing.assert_array_equal(columns, X)
    whole = jax.device_put(columns, on(mesh))
    np.testing.assert_array_equal(whole, X)
    one = jax.device_put(whole, jax.devices()[3])
    np.testing.assert_array_equal(one, X)
    partly = jax.device_put(X, on(mesh, "slice"))
    np.testing.assert_array_equal(partly, X)
    other_slice = jax.device_put(tiled, on(mesh_of(1), None, "chip"))
    np.testing.assert_array_equal(other_slice, X)
    np.testing.assert_array_equal(jax.device_put(other_slice, on(mesh_of(0), "chip")), X)
    turned = Mesh(mesh.devices[::-1, ::-1], mesh.axis_names)
    np.testing.assert_array_equal(jax.device_put(tiled, on(turned, "slice", "chip")), X)


def check_host_layouts() -> None:
    """Arrays that are not dense and row-major on the host arrive as they are."""
    device = jax.devices()[2]
    for host in (X.T, np.asfortranarray(X), X[::2], X[:, 1:5], np.float32(3), np.zeros((0, 3))):
        np.testing.assert_array_equal(jax.device_put(host, device), host)


def check_parts() -> None:
    """An array comes apart into its shards and together again."""
    tiled = jax.device_put(X, on(mesh_of(0, 1), "slice", "chip"))
    for shard in tiled.addressable_shards:
        np.testing.assert_array_equal(shard.data, X[shard.index])
    parts = [shard.data for shard in tiled.addressable_shards]
    again = jax.make_array_from_single_device_arrays(X.shape, tiled.sharding, parts)
    np.testing.assert_array_equal(again, X)
    called = jax.make_array_from_callback(X.shape, tiled.sharding, lambda index: X[index])
    np.testing.assert_array_equal(called, X)


def check_types() -> None:
    """Every element type goes there and back, small ones too."""
    names = (
        "bool int2 int4 uint4 int8 uint16 int32 float16 bfloat16 float8_e4m3fn float8_e5m2 "
        "float4_e2m1fn float32 complex64"
    )
    for name in names.split():
        host = np.array([0, 1, 1, 0]).astype(jnp.dtype(name))
        there = jnp.asarray(host)
        assert there.dtype == host.dtype, name
        np.testing.assert_array_equal(np.asarray(there), host)
    with jax.enable_x64(True):
        wide = jnp.asarray(np.array([1.5, 2**40], np.float64)) + 1
        assert wide.dtype == jnp.float64
        np.testing.assert_array_equal(wide, [2.5, 2**40 + 1])


def check_memories() -> None:
    """Host memories work as kinds of memory."""
    mesh = mesh_of(0, 1)
    pinned = on(mesh, "slice").with_memory_kind("pinned_host")
    there = jax.device_put(X, pinned)
    assert there.sharding.memory_kind == "pinned_host"
    back = jax.device_put(there, on(mesh, "slice"))
    assert back.sharding.memory_kind == "device"
    np.testing.assert_array_equal(back, X)
    moved = jax.jit(lambda x: x + 1, out_shardings=pinned)(back)
    assert moved.sharding.memory_kind == "pinned_host"
    np.testing.assert_array_equal(moved, X + 1)


def check_ends() -> None:
    """Deleted and donated arrays can't be used any more, and nothing else is touched."""
    mesh = mesh_of(0, 1)
    state = jax.device_put(X, on(mesh, "slice"))
    step = jax.jit(lambda x: x + 1, donate_argnums=0)
    for _ in range(5):
        following = step(state)
        assert state.is_deleted()
        state = following
    np.testing.assert_array_equal(state, X + 5)
    gone = jnp.ones(3)
    gone.delete()
    assert "deleted" in error_of(lambda: gone + 1)
    for target in (on(mesh, "chip"), on(mesh_of(1), "chip"), jax.devices()[0]):
        source = jax.device_put(X, on(mesh, "slice"))
        np.testing.assert_array_equal(jax.device_put(source, target, donate=True), X)
    kept = jax.device_put(X, on(mesh, "slice"))
    np.testing.assert_array_equal(jax.device_put(kept, on(mesh, "slice"), may_alias=True), X)
    np.testing.assert_array_equal(kept, X)


if __name__ == "__main__":
    check_devices()
    check_shardings()
    check_host_layouts()
    check_parts()
    check_types()
    check_memories()
    check_ends()
    tell("done")
