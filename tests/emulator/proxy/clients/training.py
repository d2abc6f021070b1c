# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Trains a small transformer on both slices, loses one, goes on, and takes it back.

Usage: python -m tests.emulator.proxy.clients.training DIRECTORY (for checkpoints)
"""

import sys
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
from jax.sharding import Mesh
from pathwaysutils.elastic import elastic
from pathwaysutils.elastic.manager import Manager, ScaleUpSignalError
from tests.emulator.proxy.clients.common import mesh_of, on, tell, wait_for

WIDTH, LAYERS, LENGTH, BATCH, VOCABULARY = 32, 2, 16, 8, 11
STEPS_EACH = 12

type State = dict[str, Any]

optimizer = optax.adam(3e-3)


def initial_state() -> State:
    """Weights and optimizer state, on the host."""
    draw = np.random.default_rng(0)

    def weight(*shape: int) -> np.ndarray[Any, Any]:
        return draw.normal(size=shape, scale=0.1).astype(np.float32)

    weights = {
        "embed": weight(VOCABULARY, WIDTH),
        "layers": [
            {
                "qkv": weight(WIDTH, 3 * WIDTH),
                "up": weight(WIDTH, 4 * WIDTH),
                "down": weight(4 * WIDTH, WIDTH),
            }
            for _ in range(LAYERS)
        ],
    }
    return {"weights": weights, "optimizer": optimizer.init(weights), "step": np.int32(0)}


def place(state: State, mesh: Mesh) -> State:
    """Shards matrices over the chips of a slice, and copies everything to each slice."""

    def sharding(leaf: Any) -> jax.sharding.NamedSharding:
        return on(mesh, None, "chip") if np.ndim(leaf) == 2 else on(mesh)

    placed: State = jax.device_put(state, jax.tree.map(sharding, state))
    return placed


def loss_of(weights: Any, tokens: jax.Array, key: jax.Array) -> jax.Array:
    """Next-token loss with dropout."""
    x = weights["embed"][tokens]
    mask = jnp.tril(jnp.ones((LENGTH, LENGTH), bool))
    for layer in weights["layers"]:
        q, k, v = jnp.split(x @ layer["qkv"], 3, axis=-1)
        scores = jnp.where(mask, jnp.einsum("bqd,bkd->bqk", q, k) / WIDTH**0.5, -1e9)
        x = x + jnp.einsum("bqk,bkd->bqd", jax.nn.softmax(scores), v)
        x = x + jax.nn.gelu(x @ layer["up"]) @ layer["down"]
    x = x * jax.random.bernoulli(key, 0.9, x.shape) / 0.9
    logits = x @ weights["embed"].T
    losses = optax.softmax_cross_entropy_with_integer_labels(logits[:, :-1], tokens[:, 1:])
    mean: jax.Array = losses.mean()
    return mean


@partial(jax.jit, donate_argnums=0)
def train_step(state: State, tokens: jax.Array) -> tuple[State, jax.Array]:
    """One step; the state is given away."""
    key = jax.random.fold_in(jax.random.key(0), state["step"])
    loss, gradients = jax.value_and_grad(loss_of)(state["weights"], tokens, key)
    updates, moments = optimizer.update(gradients, state["optimizer"], state["weights"])
    weights = optax.apply_updates(state["weights"], updates)
    return {"weights": weights, "optimizer": moments, "step": state["step"] + 1}, loss


class Training:
    """State of the program across losses."""

    def __init__(self, directory: str) -> None:
        self.manager = Manager()
        self.checkpoints = ocp.CheckpointManager(directory)
        self.losses: list[float] = []
        self.slices_seen: list[tuple[int, ...]] = []

    def restore(self, mesh: Mesh) -> State:
        """The newest checkpoint, on this mesh; or the start."""
        start = place(initial_state(), mesh)
        step = self.checkpoints.latest_step()
        if step is None:
            return start
        target = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), start
        )
        restored: State = self.checkpoints.restore(step, args=ocp.args.StandardRestore(target))
        return restored

    def run(self) -> None:
        """Trains on the slices that are alive until told otherwise."""
        slices = tuple(sorted(elastic.get_active_slice_indices()))
        self.slices_seen.append(slices)
        mesh = mesh_of(*slices)
        state = self.restore(mesh)
        tokens = np.tile(np.arange(LENGTH) % VOCABULARY, (BATCH, 1)).astype(np.int32)
        batch = jax.device_put(tokens, on(mesh, "slice"))
        for _ in range(STEPS_EACH):
            state, loss = train_step(state, batch)
            self.losses.append(float(loss))
        self.checkpoints.save(int(state["step"]), args=ocp.args.StandardSave(state))
        self.checkpoints.wait_until_finished()
        if self.slices_seen == [(0, 1)]:
            tell("trained")
            wait_for("lost")
            # The loss is found in the middle of a step.
            train_step(state, batch)[1].block_until_ready()
            raise AssertionError("a step on a lost slice succeeded")
        if slices == (0,):
            tell("trained")
            wait_for("revived")
            raise ScaleUpSignalError


def main() -> None:
    """Runs the whole story."""
    training = Training(sys.argv[1])
    run = training.manager.elastic_retry(
        max_retries=4, minimum_slice_count=1, poll_interval=1, timeout=60
    )(training.run)
    run()
    assert training.slices_seen == [(0, 1), (0,), (0, 1)], training.slices_seen
    assert len(training.losses) == 3 * STEPS_EACH
    assert training.losses[-1] < training.losses[0] / 2, training.losses
    # No step was lost but the one that failed: every run began where the last one had ended.
    for start in (STEPS_EACH, 2 * STEPS_EACH):
        assert training.losses[start] < training.losses[start - 3] + 0.2, training.losses
    assert training.checkpoints.latest_step() == 3 * STEPS_EACH
    tell("done")


if __name__ == "__main__":
    main()
