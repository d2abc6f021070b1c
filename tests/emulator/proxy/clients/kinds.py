# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Holds arrays of every kind while slices are suspended, and compares every bit afterwards.

It says ``full`` when it holds them. Each line it hears after that makes it use all of them and say
``same``; ``finish`` ends it.
"""

import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.layout import Format, Layout
from jax.sharding import Sharding
from tests.emulator.proxy.clients.common import error_of, mesh_of, on, tell

type Host = np.ndarray[Any, np.dtype[Any]]

TYPES = (
    *("bool", "int2", "int4", "int8", "int16", "int32", "int64"),
    *("uint2", "uint4", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
    *("float8_e3m4", "float8_e4m3", "float8_e4m3fn", "float8_e4m3b11fnuz", "float8_e4m3fnuz"),
    *("float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn"),
)
MEMORY_KINDS = ("device", "pinned_host", "unpinned_host")


def host_array(name: str) -> Host:
    """Every bit pattern of small types, and some of large ones, with infinities and NaNs."""
    dtype = jnp.dtype(name)
    if name == "bool":
        return np.resize(np.array([True, False, False]), (8, 8))
    if "int" in name and int(name.lstrip("uint")) < 8:
        return np.arange(64).reshape(8, 8).astype(np.int8).astype(dtype)
    if name == "float4_e2m1fn":
        return np.linspace(-6, 6, 64).reshape(8, 8).astype(dtype)
    data = np.random.default_rng(len(name)).bytes(64 * dtype.itemsize)
    return np.frombuffer(data, dtype).reshape(8, 8)


def shardings() -> Iterator[Sharding]:
    """On one slice, on the other, on both; whole, in parts, mirrored; in every memory."""
    devices = jax.devices()
    both, second = mesh_of(0, 1), mesh_of(1)
    yield jax.sharding.SingleDeviceSharding(devices[5])
    for place in (on(both, "slice", "chip"), on(both, "chip"), on(both), on(second, "chip")):
        for kind in MEMORY_KINDS:
            yield place.with_memory_kind(kind)
    yield on(mesh_of(0), None, "chip")
    yield on(both, ("chip", "slice"))


def bits(host: Any) -> bytes:
    """What an array consists of."""
    return bytes(np.ascontiguousarray(host).reshape(-1).view(np.uint8))


def make() -> list[tuple[jax.Array, Host]]:
    """Arrays and what is in them."""
    places = list(shardings())
    result = [
        (jax.device_put(host, place), host)
        for number, host in enumerate(map(host_array, TYPES))
        for place in (places if host.dtype == jnp.bfloat16 else places[number % 3 :: 3])
    ]
    both = mesh_of(0, 1)
    odds: tuple[Host, ...] = (np.array(3.5, np.float32), np.zeros((0, 3)), np.zeros((8, 0), bool))
    for odd in odds:
        result += [
            (jax.device_put(odd, on(both)), odd),
            (jax.device_put(odd, jax.devices()[4]), odd),
        ]
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    whole = jax.device_put(x, on(both, "slice", "chip"))
    # Computed, parts of another array, put together from them, and made from a key.
    result.append((jax.jit(lambda y: y * 2)(whole), x * 2))
    result += [(shard.data, x[shard.index]) for shard in whole.addressable_shards]
    parts = [shard.data for shard in whole.addressable_shards]
    again = jax.make_array_from_single_device_arrays(x.shape, whole.sharding, parts)
    result += [(whole, x), (again, x)]
    for dtype in (np.float32, jnp.int4):
        # Columns first, as programs may ask for: here over a mesh and on one device.
        for place in (on(both, "chip"), jax.sharding.SingleDeviceSharding(jax.devices()[5])):
            turn = jax.jit(
                partial(jnp.asarray, dtype=dtype), out_shardings=Format(Layout((1, 0)), place)
            )
            turned = turn(jax.device_put(x % 7, place))
            result.append((turned, (x % 7).astype(dtype)))
    key = jax.random.key_data(jax.device_put(jax.random.key(7), on(both)))
    result.append((key, np.asarray(jax.random.key_data(jax.random.key(7)))))
    return result


@jax.jit
def same(x: jax.Array) -> jax.Array:
    """A program that changes nothing."""
    return x


def check(arrays: list[tuple[jax.Array, Host]]) -> None:
    """Every array is what it was, on the host and in a program."""
    for array, host in arrays:
        assert bits(array) == bits(host), (array.dtype, array.sharding)
        if array.dtype in (jnp.bfloat16, jnp.float32):
            assert bits(same(array)) == bits(host), (array.dtype, array.sharding)


def main() -> None:
    """Runs the conversation."""
    with jax.enable_x64(True):
        arrays = make()
        given = jax.device_put(np.ones(8, np.float32), on(mesh_of(0, 1), ("slice", "chip")))
        kept = jax.jit(lambda y: y + 1, donate_argnums=0)(given)
        deleted = jax.device_put(np.ones(8, np.float32), jax.devices()[5])
        deleted.delete()
        refused = jax.jit(lambda y: y + 1)
        jax.block_until_ready([array for array, _ in arrays])
        tell("full")
        for line in sys.stdin:
            if line.strip() == "finish":
                break
            check(arrays)
            np.testing.assert_array_equal(kept, np.full(8, 2.0))
            for gone in (given, deleted):
                assert "deleted" in error_of(partial(refused, gone))
                assert gone.is_deleted()
            tell("same")


if __name__ == "__main__":
    main()
