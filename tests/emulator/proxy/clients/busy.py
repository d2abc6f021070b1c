# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Waits for long computations while a slice is lost.

Usage: python -m tests.emulator.proxy.clients.busy

Each line it hears names what to do: ``wait`` for one computation, ``queue`` many and wait for the
last, ``finish``. It says ``computing``, then ``failed`` for each wait that failed.
"""

import sys
import time
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
from tests.emulator.proxy.clients.common import error_of, mesh_of, on, tell

# How long a computation goes on, at least, if nothing ends it.
LONG_S = 4.0

# More than may be under way at once.
QUEUE_LENGTH = 100


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


def operand(*slices: int) -> jax.Array:
    """Over these slices, by default over both."""
    host = np.ones((8, 4096), np.float32)
    array: jax.Array = jax.device_put(host, on(mesh_of(*slices or (0, 1)), ("slice", "chip")))
    return array


def wait_for_one() -> None:
    """One wait for readiness, one for a copy; data of the other slice stays usable."""
    x = operand()
    alone = jax.device_put(np.ones(8, np.float32), on(mesh_of(0), "chip"))
    result = spin(x, turns_for(LONG_S, x))
    with ThreadPoolExecutor() as pool:
        ready = pool.submit(error_of, lambda: jax.block_until_ready(result))
        copied = pool.submit(error_of, lambda: np.asarray(result))
        tell("computing")
        for waiter in (ready, copied):
            assert "DATA_LOSS: slice 1" in waiter.result()
            tell("failed")
    np.testing.assert_array_equal(alone + 1, np.full(8, 2.0))


def wait_for_the_last() -> None:
    """Many in line, each of the one before it."""
    x = operand()
    turns = turns_for(LONG_S / 8, x)
    for _ in range(QUEUE_LENGTH):
        x = spin(x, turns)
    with ThreadPoolExecutor() as pool:
        waiter = pool.submit(error_of, lambda: jax.block_until_ready(x))
        tell("computing")
        assert "DATA_LOSS: slice 1" in waiter.result()
        tell("failed")


if __name__ == "__main__":
    tell("ready")
    for line in sys.stdin:
        match line.strip():
            case "wait":
                wait_for_one()
            case "queue":
                wait_for_the_last()
            case "finish":
                break
        tell("done")
