# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Waits for long computations while a slice is lost: each wait must fail at once."""

import time
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np

from tests.emulator.proxy.clients.common import error_of, mesh_of, on, tell, wait_for

# How long a computation goes on, at least, if nothing ends it.
LONG_S = 8.0


@jax.jit
def spin(x: jax.Array, turns: jax.Array) -> jax.Array:
    """Works for a time that grows with ``turns``."""
    result: jax.Array = jax.lax.fori_loop(0, turns, lambda _, y: jnp.sin(y) + y, x)
    return result


def turns_for(seconds: float, x: jax.Array) -> int:
    """How many turns take at least that long."""
    jax.block_until_ready(spin(x, 1))
    turns = 1000
    while True:
        start = time.monotonic()
        jax.block_until_ready(spin(x, turns))
        took = time.monotonic() - start
        if took > 0.2:
            return int(turns * seconds / took)
        turns *= 4


def check_waiters() -> None:
    """Waiting for readiness, and for a copy."""
    x = jax.device_put(np.ones((8, 4096), np.float32), on(mesh_of(0, 1), ("slice", "chip")))
    alone = jax.device_put(np.ones(8, np.float32), on(mesh_of(0), "chip"))
    turns = turns_for(LONG_S, x)
    result = spin(x, turns)
    with ThreadPoolExecutor() as pool:
        ready = pool.submit(error_of, lambda: jax.block_until_ready(result))
        copied = pool.submit(error_of, lambda: np.asarray(result))
        tell("computing")
        for waiter in (ready, copied):
            assert "DATA_LOSS: slice 1" in waiter.result()
            tell("failed")
    np.testing.assert_array_equal(alone + 1, np.full(8, 2.0))
    tell("done")


def check_queue() -> None:
    """Many computations in line, more than may be under way at once."""
    x = jax.device_put(np.ones((8, 4096), np.float32), on(mesh_of(0, 1), ("slice", "chip")))
    turns = turns_for(LONG_S / 8, x)
    jax.block_until_ready(x)
    for _ in range(100):
        x = spin(x, turns)
    with ThreadPoolExecutor() as pool:
        waiter = pool.submit(error_of, lambda: jax.block_until_ready(x))
        tell("computing")
        assert "DATA_LOSS: slice 1" in waiter.result()
        tell("failed")
    wait_for("finish")


if __name__ == "__main__":
    check_waiters()
    wait_for("again")
    check_queue()
    tell("done")
