# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""A small decoder-only transformer over bytes, and a text to train it on that every machine has.

Everything here is a function of its arguments and knows nothing of devices: how arrays are laid out
is the training program's business, and XLA inserts the communication.
"""

import math
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

VOCABULARY = 256
"""Tokens are bytes, so that the vocabulary does not depend on the text."""

type Params = dict[str, jax.Array]


@dataclass(frozen=True)
class ModelConfig:
    """The model's size.

    Attributes:
        layers: Transformer blocks.
        width: Of the residual stream; a multiple of ``heads``.
        heads: Attention heads of each block.
        seq_len: Tokens of context, and predictions per example.
        dropout: Probability with which a unit is dropped, 0 <= dropout < 1.
    """

    layers: int = 2
    width: int = 64
    heads: int = 4
    seq_len: int = 64
    dropout: float = 0.1


def load_text(max_bytes: int, root: Path | None = None) -> npt.NDArray[np.uint8]:
    """The first ``max_bytes`` bytes of the Python sources below ``root``, in sorted order.

    Args:
        max_bytes: Where to stop.
        root: A directory; the standard library of this Python if None.

    Raises:
        FileNotFoundError: There is no Python source below ``root``.
    """
    root = Path(sysconfig.get_path("stdlib")) if root is None else root
    text = bytearray()
    for path in sorted(root.glob("*.py")):
        text += path.read_bytes()
        if len(text) >= max_bytes:
            break
    if not text:
        raise FileNotFoundError(f"no *.py file in {root}")
    return np.frombuffer(bytes(text[:max_bytes]), dtype=np.uint8)


def batch_at(
    text: npt.NDArray[np.uint8], *, seed: int, step: int, batch: int, rows: int, seq_len: int
) -> npt.NDArray[np.int32]:
    """The examples of one step: a function of seed and step, whatever devices take part.

    Returns:
        Tokens of shape [rows, seq_len + 1]. The first ``batch`` rows are windows of the text; the
        others are zeros that fill the batch up to what the devices can divide.
    """
    starts = np.random.default_rng([seed, step]).integers(0, len(text) - seq_len, size=batch)
    tokens = np.zeros((rows, seq_len + 1), np.int32)
    tokens[:batch] = text[starts[:, None] + np.arange(seq_len + 1)]
    return tokens


def init_params(key: jax.Array, config: ModelConfig) -> Params:
    """Fresh parameters. Those of the blocks are stacked: their first axis is the layer."""
    n, d = config.layers, config.width
    shapes = {
        "embedding": (VOCABULARY, d),
        "positions": (config.seq_len, d),
        "qkv": (n, d, 3 * d),
        "attention_out": (n, d, d),
        "up": (n, d, 4 * d),
        "down": (n, 4 * d, d),
        "readout": (d, VOCABULARY),
    }
    # The residual stream adds up 2n outputs: start them smaller, so that its variance stays near 1.
    gains = {"attention_out": (2 * n) ** -0.5, "down": (2 * n) ** -0.5}
    keys = jax.random.split(key, len(shapes))
    params = {
        name: jax.random.normal(k, shape) * gains.get(name, 1.0) / math.sqrt(shape[-2])
        for k, (name, shape) in zip(keys, shapes.items(), strict=True)
    }
    params["embedding"] = jax.random.normal(keys[0], shapes["embedding"]) * 0.5
    params["positions"] = jax.random.normal(keys[1], shapes["positions"]) * 0.1
    params |= {name: jnp.ones((n, d)) for name in ("attention_norm", "mlp_norm")}
    params["final_norm"] = jnp.ones((d,))
    return params


def _normalise(x: jax.Array, gain: jax.Array) -> jax.Array:
    return gain * x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6)


def _drop(x: jax.Array, key: jax.Array, rate: float) -> jax.Array:
    if rate == 0:
        return x
    return jnp.where(jax.random.bernoulli(key, 1 - rate, x.shape), x / (1 - rate), 0)


def _attention(x: jax.Array, layer: Params, heads: int) -> jax.Array:
    batch, length, width = x.shape
    qkv = (x @ layer["qkv"]).reshape(batch, length, 3, heads, width // heads)
    scores = jnp.einsum("bqhd,bkhd->bhqk", qkv[:, :, 0], qkv[:, :, 1])
    causal = jnp.tril(jnp.ones((length, length), bool))
    weights = jax.nn.softmax(jnp.where(causal, scores / math.sqrt(width // heads), -jnp.inf))
    mixed = jnp.einsum("bhqk,bkhd->bqhd", weights, qkv[:, :, 2])
    return mixed.reshape(x.shape) @ layer["attention_out"]


def logits(params: Params, tokens: jax.Array, key: jax.Array, config: ModelConfig) -> jax.Array:
    """Next-token logits, [batch, length, VOCABULARY], for tokens of [batch, length]."""

    def block(x: jax.Array, layer: tuple[jax.Array, Params]) -> tuple[jax.Array, None]:
        index, p = layer
        first, second = jax.random.split(jax.random.fold_in(key, index))
        x += _drop(
            _attention(_normalise(x, p["attention_norm"]), p, config.heads), first, config.dropout
        )
        hidden = jax.nn.gelu(_normalise(x, p["mlp_norm"]) @ p["up"])
        return x + _drop(hidden @ p["down"], second, config.dropout), None

    stacked = ("qkv", "attention_out", "up", "down", "attention_norm", "mlp_norm")
    x = params["embedding"][tokens] + params["positions"][: tokens.shape[1]]
    # A scan compiles one block, not one per layer: what a lost slice costs is mostly compilation.
    x, _ = jax.lax.scan(
        block, x, (jnp.arange(config.layers), {name: params[name] for name in stacked})
    )
    return _normalise(x, params["final_norm"]) @ params["readout"]


def loss(
    params: Params, tokens: jax.Array, key: jax.Array, config: ModelConfig, batch: int
) -> jax.Array:
    """Mean cross-entropy, in nats per byte, of the first ``batch`` rows of ``tokens``.

    Rows beyond ``batch`` only fill the array up and count nothing. Threefry is partitionable, so
    neither they nor the layout change the dropout of the rows before them.
    """
    predicted = jax.nn.log_softmax(logits(params, tokens[:, :-1], key, config))
    picked = jnp.take_along_axis(predicted, tokens[:, 1:, None], axis=-1)[..., 0]
    counted = jnp.arange(tokens.shape[0]) < batch
    return -jnp.sum(jnp.where(counted[:, None], picked, 0)) / (batch * config.seq_len)
