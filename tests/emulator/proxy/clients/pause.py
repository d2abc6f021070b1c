# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Does what it is told with arrays on two slices, and says how it went.

Each line it hears is one thing to do; it answers ``ok``, or ``error`` and the error's text.

==============  ==================================================================================
make            arrays on slice 0, on slice 1 and on both; what was made before is forgotten
fill MEBIBYTES  an array of that size on slice 1, computed there
spin SECONDS    a computation on both slices, or those that are named; the answer comes when it has
                begun, and another line when it has ended
use             what was made, all of it
use NAME        what was made on slice 0 or 1, or on both
fresh           new arrays on slice 1
fresh SLICE     new arrays on that slice
==============  ==================================================================================
"""

import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
from tests.emulator.proxy.clients.busy import operand, spin, turns_for
from tests.emulator.proxy.clients.common import mesh_of, on, tell

X = np.arange(64, dtype=np.float32).reshape(8, 8)

made: dict[str, jax.Array] = {}


def do(words: list[str]) -> None:
    """One thing."""
    match words:
        case ["make"]:
            made.clear()
            made["0"] = jax.device_put(X, on(mesh_of(0), "chip"))
            made["1"] = jax.device_put(X, on(mesh_of(1), "chip"))
            made["both"] = jax.device_put(X, on(mesh_of(0, 1), ("slice", "chip")))
            jax.block_until_ready(made)
        case ["fill", mebibytes]:
            size = int(mebibytes) << 18
            fill = jax.jit(
                lambda: jnp.arange(size, dtype=jnp.float32), out_shardings=on(mesh_of(1))
            )
            made["large"] = jax.block_until_ready(fill())
        case ["spin", seconds, *slices]:
            x = operand(*map(int, slices))
            made["spun"] = spin(x, turns_for(float(seconds), x))
            # Requests are served in order: when this one is, that program has been started.
            jax.device_put(X, jax.devices()[0]).block_until_ready()
            threading.Thread(target=answer, args=(["ready", "spun"],)).start()
        case ["ready", name]:
            jax.block_until_ready(made[name])
        case ["use", *only]:
            for name in only or made:
                if made[name].shape == X.shape:
                    np.testing.assert_array_equal(made[name] * 2, X * 2)
                else:
                    jax.block_until_ready(made[name] + 1)
        case ["fresh", *only]:
            for index in only or ["1"]:
                array = jax.device_put(X, on(mesh_of(int(index)), "chip"))
                np.testing.assert_array_equal(array + 1, X + 1)


def answer(words: list[str]) -> None:
    """Does one thing and says how it went."""
    try:
        do(words)
    except (jax.errors.JaxRuntimeError, RuntimeError) as error:
        tell(f"error {str(error).splitlines()[0]}")
    else:
        tell("ok")


if __name__ == "__main__":
    tell("ready")
    for line in sys.stdin:
        answer(line.split())
