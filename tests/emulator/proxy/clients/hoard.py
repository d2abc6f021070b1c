# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Fills much memory and compiles programs, then ends or waits to be killed in the middle.

Usage: python -m tests.emulator.proxy.clients.hoard end|stay
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
from tests.emulator.proxy.clients.common import mesh_of, on, tell

MEBIBYTES = 128

if __name__ == "__main__":
    sharding = on(mesh_of(0, 1), ("slice", "chip"))
    held = [
        jax.device_put(np.full((16, 1 << 16), value, np.float32), sharding)
        for value in range(MEBIBYTES // 4)
    ]
    total = jax.jit(lambda arrays: sum(array.sum() for array in arrays))(held)
    assert float(total) > 0
    tell("full")
    if sys.argv[1] == "stay":
        while True:
            held[0] = jax.jit(lambda x: jnp.sin(x) + x)(held[0])
