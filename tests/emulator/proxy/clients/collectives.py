# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Collectives over four slices of eight chips, many at once, from two threads."""

from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
from tests.emulator.proxy.clients.common import mesh_of, on, tell

STEPS = 20


def mix(x: jax.Array) -> jax.Array:
    """Sums along both axes of the mesh, so every device waits for all others twice."""
    return x + x.sum(axis=0, keepdims=True) * 1e-3 + x.sum(axis=1, keepdims=True) * 1e-3


def check(seed: int) -> None:
    """A chain of steps gives what numpy gives."""
    x = np.random.default_rng(seed).normal(size=(32, 32)).astype(np.float32)
    there = jax.device_put(x, on(mesh_of(0, 1, 2, 3), "slice", "chip"))
    step = jax.jit(mix)
    for _ in range(STEPS):
        there = step(there)
        x = x + x.sum(axis=0, keepdims=True) * 1e-3 + x.sum(axis=1, keepdims=True) * 1e-3
    np.testing.assert_allclose(there, x, rtol=1e-3, atol=1e-3)


if __name__ == "__main__":
    assert jax.device_count() == 32
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(check, range(4)))
    tell("done")
