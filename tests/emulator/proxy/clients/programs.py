# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Compiled programs: numbers, collectives, what can be asked about them, what is refused."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import Mesh, PartitionSpec
from tests.emulator.proxy.clients.common import error_of, mesh_of, on, tell


def check_collectives() -> None:
    """jit, pmap and shard_map over both slices, and over one."""
    mesh = mesh_of(0, 1)
    x = np.random.default_rng(0).normal(size=(16, 16)).astype(np.float32)
    there = jax.device_put(x, on(mesh, "slice", "chip"))
    product = jax.jit(lambda a: a @ a.T)(there)
    np.testing.assert_allclose(product, x @ x.T, rtol=1e-4, atol=1e-4)
    count = jax.device_count()
    total = jax.pmap(lambda v: jax.lax.psum(v, "i"), axis_name="i")(np.arange(float(count)))
    np.testing.assert_array_equal(total, np.full(count, count * (count - 1) / 2))
    second = [device for device in jax.devices() if device.slice_index == 1]
    np.testing.assert_array_equal(
        jax.pmap(lambda v: v + 1, devices=second)(np.arange(4.0)), np.arange(4.0) + 1
    )
    everywhere = PartitionSpec(("slice", "chip"))
    summed = jax.shard_map(
        lambda v: jax.lax.psum(v, ("slice", "chip")),
        mesh=mesh,
        in_specs=everywhere,
        out_specs=PartitionSpec(),
    )(np.arange(8.0))
    np.testing.assert_array_equal(summed, [28.0])


def check_linalg() -> None:
    """LAPACK is there, though the client never loads it in the server."""
    a = np.random.default_rng(1).normal(size=(5, 5)).astype(np.float32)
    np.testing.assert_allclose(jnp.linalg.inv(a), np.linalg.inv(a), rtol=1e-2, atol=1e-2)
    np.testing.assert_allclose(
        jnp.linalg.svd(a, compute_uv=False), np.linalg.svd(a, compute_uv=False), rtol=1e-3
    )
    symmetric = a @ a.T + 5 * np.eye(5, dtype=np.float32)
    lower = jnp.linalg.cholesky(symmetric)
    np.testing.assert_allclose(lower @ lower.T, symmetric, rtol=1e-3, atol=1e-3)
    values, vectors = jnp.linalg.eigh(symmetric)
    np.testing.assert_allclose((vectors * values) @ vectors.T, symmetric, rtol=1e-3, atol=1e-3)


def check_random() -> None:
    """The same numbers as anywhere."""
    key = jax.random.key(7)
    # As JAX 0.12 gives them on a CPU without a proxy.
    np.testing.assert_allclose(
        jax.random.normal(key, (4,)), [0.45123515, 1.9534509, -0.51623946, -0.14094029], rtol=1e-5
    )
    assert jax.random.bits(jax.random.key(0), (2,), "uint32").tolist() == [4070199207, 4202968722]
    assert jax.random.split(key, 3).shape == (3,)


def check_questions() -> None:
    """A program's text, costs and memory."""
    compiled = jax.jit(lambda a: jnp.sin(a) @ a).lower(np.ones((8, 8), np.float32)).compile()
    assert "HloModule" in (compiled.as_text() or "")
    costs = compiled.cost_analysis()
    assert costs is not None
    assert costs["flops"] >= 1024
    memory = compiled.memory_analysis()
    assert memory is not None
    assert memory.argument_size_in_bytes == 256


def check_refusals() -> None:
    """What needs the client's process is refused in words, and nothing else breaks."""
    there = jax.device_put(np.ones(8, np.float32), on(mesh_of(0, 1), "slice"))

    def inspect(x: jax.Array) -> jax.Array:
        jax.debug.inspect_array_sharding(x, callback=print)
        return x

    assert "UNIMPLEMENTED" in error_of(lambda: jax.jit(inspect)(there))

    @custom_partitioning
    def twice(x: jax.Array) -> jax.Array:
        return x * 2

    def partition(mesh: Mesh, arguments: Any, _result: Any) -> Any:
        return mesh, lambda x: x * 2, arguments[0].sharding, (arguments[0].sharding,)

    twice.def_partition(
        partition=partition,
        infer_sharding_from_operands=lambda _mesh, arguments, _result: arguments[0].sharding,
        sharding_rule="i -> i",
    )
    assert "UNIMPLEMENTED" in error_of(lambda: jax.jit(twice)(there))

    def show(x: jax.Array) -> jax.Array:
        jax.debug.print("{}", x)
        return x

    assert "UNIMPLEMENTED" in error_of(lambda: jax.block_until_ready(jax.jit(show)(1.0)))
    huge = error_of(lambda: jax.block_until_ready(jax.jit(lambda: jnp.ones((1 << 40,)))()))
    assert "RESOURCE_EXHAUSTED" in huge
    # The first execution fails by its reply, this one by its results.
    allocate = jax.jit(lambda n: jnp.ones((1 << 40,)) + n)
    for _ in range(2):
        error = error_of(lambda: jax.block_until_ready(allocate(1.0)))
        assert not any(word in error for word in ("DATA_LOSS", "INTERNAL", "NOT_FOUND")), error
    np.testing.assert_array_equal(there + 1, np.full(8, 2.0))


if __name__ == "__main__":
    check_collectives()
    check_linalg()
    check_random()
    check_questions()
    check_refusals()
    tell("done")
