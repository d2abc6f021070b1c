# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The program of soak.py: computes on all slices, and starts over when a slice is lost.

It hears ``run``, ``pause`` (nothing of it is on any slice then) and the end of its input. It says
``paused``, ``step N`` after each step, ``lost MESSAGE`` when data was, and ``wrong VALUES`` should
a result ever be another than it must be.
"""

import gc
import queue
import sys
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pathwaysutils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

ROWS_OF_DEVICE = 64
COLUMNS = 4096
# Of a try after a loss. A device that is lost says so at once.
AGAIN_S = 0.1


class Program:
    """Adds 1 to all that is on a device, in every step; each step also moves all data on by one."""

    def __init__(self) -> None:
        devices = sorted(jax.devices(), key=lambda device: device.id)
        self._rows = ROWS_OF_DEVICE * len(devices)
        self._split = NamedSharding(Mesh(np.array(devices), ("device",)), PartitionSpec("device"))
        self._step = jax.jit(
            lambda x: (jnp.roll(x + 1, ROWS_OF_DEVICE, axis=0), x.min(), x.max()),
            out_shardings=(self._split, None, None),
        )
        self._data: jax.Array | None = None
        self._count = 0

    def step(self) -> str:
        """Takes one, from the start if there is no data; what to say of it."""
        try:
            if self._data is None:
                self._count = 0
                host = np.zeros((self._rows, COLUMNS), np.float32)
                self._data = jax.device_put(host, self._split)
            self._data, lowest, highest = self._step(self._data)
            found = (float(lowest), float(highest))
        except (jax.errors.JaxRuntimeError, RuntimeError) as error:
            words = str(error).partition("\n")[0]
        else:
            self._count += 1
            expected = float(self._count - 1)
            return f"step {self._count}" if set(found) == {expected} else f"wrong {found}"
        self.release()
        time.sleep(AGAIN_S)
        return f"lost {words}"

    def release(self) -> None:
        """Gives all data up."""
        self._data = None
        gc.collect()


def main() -> None:
    """Runs until standard input ends."""
    orders: queue.SimpleQueue[str] = queue.SimpleQueue()

    def read() -> None:
        for line in sys.stdin:
            orders.put(line.strip())
        orders.put("end")

    threading.Thread(target=read, daemon=True).start()
    pathwaysutils.initialize()
    program = Program()
    running = False
    while True:
        try:
            order = orders.get_nowait() if running else orders.get()
        except queue.Empty:
            print(program.step(), flush=True)
            continue
        if order == "end":
            return
        running = order == "run"
        if not running:
            program.release()
            # Requests are served in order: when this one is, those before it are done.
            jax.device_put(np.zeros(1), jax.devices()[0]).block_until_ready()
            print("paused", flush=True)


if __name__ == "__main__":
    main()
