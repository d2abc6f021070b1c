# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Trains on both slices twice: undisturbed, and with whatever the test does meanwhile.

It says ``trained`` after the first time and ``step N`` now and then in the second, and in the end
``same`` if every loss had the same bits both times.
"""

import jax
import numpy as np
from tests.emulator.proxy.clients.common import mesh_of, on, tell, wait_for
from tests.emulator.proxy.clients.training import (
    BATCH,
    LENGTH,
    VOCABULARY,
    initial_state,
    place,
    train_step,
)

STEPS = 120
# Steps that are begun without waiting for the ones before.
AHEAD = 8


def train(announce: bool) -> list[str]:
    """The losses, exactly."""
    mesh = mesh_of(0, 1)
    state = place(initial_state(), mesh)
    tokens = np.tile(np.arange(LENGTH) % VOCABULARY, (BATCH, 1)).astype(np.int32)
    batch = jax.device_put(tokens, on(mesh, "slice"))
    losses: list[jax.Array] = []
    exact: list[str] = []
    for step in range(STEPS):
        state, loss = train_step(state, batch)
        losses.append(loss)
        if len(losses) == AHEAD:
            exact += [float(loss).hex() for loss in losses]
            losses.clear()
            if announce:
                tell(f"step {step + 1}")
    return exact


if __name__ == "__main__":
    undisturbed = train(announce=False)
    tell("trained")
    wait_for("again")
    disturbed = train(announce=True)
    assert len(set(undisturbed)) > STEPS / 2
    tell("same" if disturbed == undisturbed else f"different: {undisturbed} {disturbed}")
