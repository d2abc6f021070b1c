# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""A client forgets arrays at any time, so also while a lost slice turns them into errors."""

import threading
from typing import Any

from pathways_emulator.proxy.arrays import Array, ArrayStore
from pathways_emulator.proxy.health import Health, SliceHealth
from pathways_emulator.proxy.status import Code, Status

ALIVE = Health((SliceHealth(1, None), SliceHealth(1, None)))
ONE_LOST = Health((SliceHealth(1, None), SliceHealth(0, Status(Code.DATA_LOSS, "slice 1"))))


def test_arrays_may_be_removed_while_a_loss_is_applied() -> None:
    removed: list[int] = []
    remover: list[threading.Thread] = []

    def is_ready(_value: Any) -> bool:
        # Called within on_health: another thread removes what is stored, or waits until it may.
        if not remover:
            remover.append(threading.Thread(target=lambda: removed.extend(store.remove([1, 2]))))
            remover[0].start()
            remover[0].join(0.2)
        return True

    store = ArrayStore(ALIVE, is_ready)
    value: Any = object()
    both = ((0, 1), (1, 1))
    store.insert([1, 2], [Array(None, value, both[:1], origin=both) for _ in range(2)])
    store.on_health(ONE_LOST)
    remover[0].join()
    assert removed == []
    assert len(store) == 0
