# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The example's model and text."""

from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import char_transformer as model

CONFIG = model.ModelConfig(layers=2, width=16, heads=4, seq_len=12, dropout=0.25)
KEY = jax.random.key(0)


@pytest.fixture(scope="module")
def params() -> model.Params:
    return model.init_params(KEY, CONFIG)


def tokens(rows: int) -> jax.Array:
    return jax.random.randint(KEY, (rows, CONFIG.seq_len + 1), 0, model.VOCABULARY)


def test_text_is_the_sources_in_sorted_order(tmp_path: Path) -> None:
    (tmp_path / "b.py").write_text("second")
    (tmp_path / "a.py").write_text("first ")
    (tmp_path / "c.txt").write_text("not a source")
    assert bytes(model.load_text(100, tmp_path)) == b"first second"
    assert bytes(model.load_text(8, tmp_path)) == b"first se"


def test_text_of_the_standard_library_fills_what_was_asked() -> None:
    assert len(model.load_text(1_000_000)) == 1_000_000


def test_no_text_names_the_directory(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=str(tmp_path)):
        model.load_text(100, tmp_path)


def test_batch_holds_windows_of_the_text_and_zeros() -> None:
    text = np.arange(200, dtype=np.uint8)
    batch = model.batch_at(text, seed=3, step=5, batch=4, rows=6, seq_len=7)
    assert batch.shape == (6, 8)
    assert (np.diff(batch[:4], axis=1) == 1).all()
    assert (batch[4:] == 0).all()


def test_batch_depends_on_seed_and_step_and_not_on_padding() -> None:
    text = model.load_text(10_000)

    def batch(seed: int, step: int, rows: int = 4) -> np.ndarray:
        return model.batch_at(text, seed=seed, step=step, batch=4, rows=rows, seq_len=7)

    assert (batch(0, 1) == batch(0, 1)).all()
    assert (batch(0, 1) == batch(0, 1, rows=9)[:4]).all()
    assert (batch(0, 1) != batch(0, 2)).any()
    assert (batch(0, 1) != batch(1, 1)).any()


def test_no_logit_depends_on_a_later_token(params: model.Params) -> None:
    config = replace(CONFIG, dropout=0.0)
    one = tokens(1)[:, :-1]
    other = one.at[0, 6:].add(1)
    a, b = (model.logits(params, x, KEY, config) for x in (one, other))
    np.testing.assert_allclose(a[0, :6], b[0, :6], rtol=1e-5)
    assert not np.allclose(a[0, 6:], b[0, 6:])


def test_dropout_follows_its_key(params: model.Params) -> None:
    x = tokens(2)
    same, again, other = (
        float(model.loss(params, x, jax.random.key(seed), CONFIG, 2)) for seed in (1, 1, 2)
    )
    assert same == again != other


def test_rows_that_fill_the_batch_count_nothing(params: model.Params) -> None:
    x = tokens(3)
    padded = jnp.concatenate([x, jnp.zeros((5, x.shape[1]), x.dtype)])
    expected = float(model.loss(params, x, KEY, CONFIG, 3))
    assert float(model.loss(params, padded, KEY, CONFIG, 3)) == pytest.approx(expected, rel=1e-5)


def test_loss_of_fresh_parameters_is_near_that_of_a_guess(params: model.Params) -> None:
    assert 0.8 < float(model.loss(params, tokens(8), KEY, CONFIG, 8)) / np.log(256) < 1.3
