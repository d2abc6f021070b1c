# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""A proxy without its server, whose scratch location decides how far the work on slices gets."""

import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from queue import Queue
from typing import IO

import numpy as np

from pathways_emulator.membership import Membership, Notice, SliceMember
from pathways_emulator.proxy.arrays import Array
from pathways_emulator.proxy.cpu_executor import CpuExecutor
from pathways_emulator.proxy.devices import DeviceTable
from pathways_emulator.proxy.dtypes import dtype_named
from pathways_emulator.proxy.executor import ArraySpec
from pathways_emulator.proxy.registry import SessionRegistry
from pathways_emulator.proxy.scratch import Chunk, LocalScratch
from pathways_emulator.proxy.session import Session
from pathways_emulator.proxy.shardings import even_sharding
from pathways_emulator.proxy.slices import Policy
from pathways_emulator.proxy.status import NotYet

TIMEOUT_S = 30.0

HOST = np.arange(32, dtype=np.float32).reshape(8, 4)
HANDLE = 7


class Gate:
    """Lets a thread pass when it may, and tells when one waits."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.may_pass = threading.Event()

    def __call__(self) -> None:
        self.reached.set()
        assert self.may_pass.wait(TIMEOUT_S)


class GatedScratch(LocalScratch):
    """A directory where writing and reading wait at a gate, if one is set."""

    write_gate: Gate | None = None
    read_gate: Gate | None = None

    def write(self, name: str, chunks: Iterable[Chunk]) -> None:
        def gated() -> Iterator[Chunk]:
            for number, chunk in enumerate(chunks):
                if number == 1 and self.write_gate is not None:
                    self.write_gate()
                yield chunk

        super().write(name, gated())

    def open(self, name: str) -> IO[bytes]:
        if self.read_gate is not None:
            self.read_gate()
        return super().open(name)


class Setting:
    """A proxy without its server: two slices of four chips, and one session with one array."""

    def __init__(self, executor: CpuExecutor, root: Path, lost_at_most: int = 2) -> None:
        self.root = root
        self.scratch = GatedScratch(root)
        self.executor = executor
        self.members = [SliceMember(0, 1, True), SliceMember(1, 1, True)]
        self.released: Queue[tuple[int, int, str]] = Queue()
        self.registry = SessionRegistry(
            executor,
            DeviceTable.of(self.membership),
            self.membership,
            Policy(suspends=True, lost_at_most=lost_at_most),
            self.scratch,
            lambda *release: self.released.put(release),
        )
        self.session = self.registry.open(lambda _: None)
        devices = tuple(range(8))
        spec = ArraySpec(
            dtype_named("f32"), HOST.shape, even_sharding(devices, None, (8, 4), (1, 4))
        )
        value = executor.put(spec, [HOST[i : i + 1] for i in range(8)])
        own = self.session.arrays.health.incarnations([0, 1])
        self.session.arrays.insert([HANDLE], [Array(spec, value, own)])

    @property
    def membership(self) -> Membership:
        return Membership("tpuv6e:2x2", True, tuple(self.members))

    def apply(self, index: int, incarnation: int, alive: bool, notice: bool = False) -> None:
        reason = "" if alive else "ended"
        given = Notice("SIGTERM", 60.0) if notice else None
        self.members[index] = SliceMember(index, incarnation, alive, reason, given)
        self.registry.on_membership(self.membership)

    def suspend(self) -> None:
        self.apply(1, 1, True, notice=True)
        assert self.released.get(timeout=TIMEOUT_S)[:2] == (1, 1)
        self.apply(1, 1, False)

    def array(self, session: Session | None = None) -> Array | None:
        """The array, once nothing holds it; None while it is held."""
        try:
            return (session or self.session).arrays.get(HANDLE)
        except NotYet:
            return None

    def files(self) -> list[Path]:
        return [path for path in self.root.rglob("*") if path.is_file()]

    def wait_for_array(self) -> Array:
        array: Array | None = None

        def is_there() -> bool:
            nonlocal array
            array = self.array()
            return array is not None

        wait_until(is_there)
        assert array is not None
        return array


def wait_until(holds: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(int(TIMEOUT_S / 0.01)):
        if holds():
            return
        pause.wait(0.01)
    raise AssertionError("it did not come true")


def assert_whole(setting: Setting) -> None:
    array = setting.wait_for_array()
    assert array.error is None
    np.testing.assert_array_equal(setting.executor.to_host(array.value), HOST)
