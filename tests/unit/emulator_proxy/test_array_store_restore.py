# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Data that is put back into arrays is not asked for before it is there."""

from typing import Any

import pytest

from pathways_emulator.proxy.arrays import Array, ArrayStore, Away, Parts
from pathways_emulator.proxy.health import Health, SliceHealth
from pathways_emulator.proxy.status import NotYet

UP = Health((SliceHealth(1, None),))
HELD = Health((SliceHealth(1, None, held=True),))
BACK = Health((SliceHealth(2, None),))


def test_an_array_is_held_until_its_data_is_back() -> None:
    away = Away(0, 0, 0, None, None)
    saved, whole = object(), object()
    spec: Any = object()
    array = Array(spec, whole, ((0, 1),))
    store = ArrayStore(UP, lambda _: True)
    store.insert([1], [array])
    store.on_health(HELD)
    store.suspend(0, {array: [away]})

    def join(of: Any, parts: Parts) -> object:
        assert (of, list(parts)) == (spec, [saved])
        with pytest.raises(NotYet):
            store.get(1)
        return whole

    store.restore(0, 2, {away: saved}, join, BACK)
    assert store.get(1) is array
    assert array.value is whole
    assert array.incarnations == ((0, 2),)
