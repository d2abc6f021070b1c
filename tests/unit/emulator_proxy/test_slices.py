# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What happens while a slice's data is on its way: the scratch location decides how far it gets."""

import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from queue import Queue
from typing import IO

import numpy as np
import pytest

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

    def __init__(self, executor: CpuExecutor, root: Path) -> None:
        self.root = root
        self.scratch = GatedScratch(root)
        self.executor = executor
        self.members = [SliceMember(0, 1, True), SliceMember(1, 1, True)]
        self.released: Queue[tuple[int, int, str]] = Queue()
        self.registry = SessionRegistry(
            executor,
            DeviceTable.of(self.membership),
            self.membership,
            Policy(suspends=True, lost_at_most=2),
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


@pytest.fixture(scope="module")
def executor() -> Iterator[CpuExecutor]:
    executor = CpuExecutor(8)
    yield executor
    executor.close()


@pytest.fixture
def setting(executor: CpuExecutor, tmp_path: Path) -> Iterator[Setting]:
    setting = Setting(executor, tmp_path / "scratch")
    yield setting
    setting.registry.close_all()
    assert not setting.root.exists()


def assert_whole(setting: Setting) -> None:
    array = setting.wait_for_array()
    assert array.error is None
    np.testing.assert_array_equal(setting.executor.to_host(array.value), HOST)


def test_snapshots_are_applied_while_a_write_or_a_read_takes_long(setting: Setting) -> None:
    setting.scratch.write_gate = Gate()
    setting.apply(1, 1, True, notice=True)
    assert setting.scratch.write_gate.reached.wait(TIMEOUT_S)
    setting.apply(0, 2, True)  # would not return if it waited
    setting.scratch.write_gate.may_pass.set()
    assert setting.released.get(timeout=TIMEOUT_S)[:2] == (1, 1)
    # The other slice was replaced meanwhile, and the array lay on both.
    error = setting.wait_for_array().error
    assert error is not None
    assert "slice 0: its data was lost when it restarted" in error.message


def test_a_slice_that_ends_in_the_middle_of_a_write_is_lost_and_leaves_no_file(
    setting: Setting,
) -> None:
    setting.scratch.write_gate = Gate()
    setting.apply(1, 1, True, notice=True)
    assert setting.scratch.write_gate.reached.wait(TIMEOUT_S)
    assert setting.array() is None
    setting.apply(1, 1, False)
    array = setting.array()
    assert array is not None
    assert array.error is not None
    assert array.error.message == "slice 1: ended; its data was not saved before it ended"
    setting.scratch.write_gate.may_pass.set()
    wait_until(lambda: not setting.files())
    assert setting.released.empty()


def test_a_slice_that_ends_while_its_data_comes_back_is_still_suspended(setting: Setting) -> None:
    setting.suspend()
    gate = setting.scratch.read_gate = Gate()
    setting.apply(1, 2, True)
    assert gate.reached.wait(TIMEOUT_S)
    setting.apply(1, 2, False)
    setting.scratch.read_gate = None
    gate.may_pass.set()
    assert setting.array() is None
    assert len(setting.files()) == 1
    setting.apply(1, 3, True)
    assert_whole(setting)
    wait_until(lambda: not setting.files())


def test_a_slice_may_be_replaced_while_its_data_comes_back(setting: Setting) -> None:
    setting.suspend()
    gate = setting.scratch.read_gate = Gate()
    setting.apply(1, 2, True)
    assert gate.reached.wait(TIMEOUT_S)
    setting.apply(1, 3, True)
    gate.may_pass.set()
    assert_whole(setting)
    assert setting.wait_for_array().incarnations == ((0, 1), (1, 3))


def test_a_notice_while_the_data_comes_back_leaves_it_where_it_is(setting: Setting) -> None:
    setting.suspend()
    gate = setting.scratch.read_gate = Gate()
    setting.apply(1, 2, True)
    assert gate.reached.wait(TIMEOUT_S)
    setting.apply(1, 2, True, notice=True)
    gate.may_pass.set()
    assert setting.released.get(timeout=TIMEOUT_S)[:2] == (1, 2)
    setting.apply(1, 2, False)
    assert setting.array() is None
    setting.apply(1, 3, True)
    assert_whole(setting)


def test_both_slices_may_go_and_return_in_any_order(setting: Setting) -> None:
    for first, second in ((0, 1), (1, 0)):
        incarnation = setting.members[0].incarnation
        for index in (first, second):
            setting.apply(index, incarnation, True, notice=True)
            assert setting.released.get(timeout=TIMEOUT_S)[:2] == (index, incarnation)
            setting.apply(index, incarnation, False)
        assert len(setting.files()) == 2
        setting.apply(first, incarnation + 1, True)
        wait_until(lambda: len(setting.files()) == 1)
        assert setting.array() is None
        setting.apply(second, incarnation + 1, True)
        assert_whole(setting)


def test_a_session_that_ends_in_the_middle_of_a_write_leaves_no_file(setting: Setting) -> None:
    setting.scratch.write_gate = Gate()
    setting.apply(1, 1, True, notice=True)
    assert setting.scratch.write_gate.reached.wait(TIMEOUT_S)
    setting.registry.close(setting.session)
    setting.scratch.write_gate.may_pass.set()
    assert setting.released.get(timeout=TIMEOUT_S)[:2] == (1, 1)
    wait_until(lambda: not setting.files())


def test_a_session_that_opens_while_a_slice_is_suspended_is_held_until_it_is_back(
    setting: Setting,
) -> None:
    setting.suspend()
    late = setting.registry.open(lambda _: None)
    with pytest.raises(NotYet):
        late.arrays.health.error_of([1])
    assert late.arrays.health.error_of([0]) is None
    setting.apply(1, 2, True)
    wait_until(lambda: not late.arrays.health.held)
    assert late.arrays.health.error_of([1]) is None
    assert_whole(setting)


def test_what_a_session_with_other_state_has_on_the_slice_is_lost_and_no_other_data(
    setting: Setting,
) -> None:
    other = setting.registry.open(lambda _: None)
    array = setting.array()
    assert array is not None
    other.arrays.insert([HANDLE], [Array(array.spec, array.value, array.incarnations)])
    other.stateful.add("colocated Python")
    setting.suspend()
    lost = setting.array(other)
    assert lost is not None
    assert lost.error is not None
    assert lost.error.message == (
        "slice 1: it is about to go, and the session uses colocated Python, whose state can't be "
        "saved"
    )
    setting.apply(1, 2, True)
    assert_whole(setting)


def test_arrays_that_share_memory_share_it_again(setting: Setting) -> None:
    array = setting.array()
    assert array is not None
    assert array.spec is not None
    again = setting.executor.assemble(array.spec, setting.executor.shards(array.value))
    setting.session.arrays.insert([HANDLE + 1], [Array(array.spec, again, array.incarnations)])
    setting.suspend()
    [path] = setting.files()
    assert path.stat().st_size < 4096 + 4 * 64
    setting.apply(1, 2, True)
    assert_whole(setting)
    first, second = setting.session.arrays.get_all([HANDLE, HANDLE + 1])
    pairs = zip(
        setting.executor.shards(first.value), setting.executor.shards(second.value), strict=True
    )
    same = setting.executor.same_memory
    assert all(same(one) == same(two) for one, two in pairs)


def test_a_shard_that_is_deleted_while_another_one_is_away_deletes_the_array(
    setting: Setting,
) -> None:
    array = setting.array()
    assert array is not None
    stays = setting.executor.shards(array.value)[0]
    setting.suspend()
    setting.executor.delete(stays)
    setting.apply(1, 2, True)
    error = setting.wait_for_array().error
    assert error is not None
    assert "donated" in error.message


def test_a_release_is_tried_again_until_the_resource_manager_has_heard_it(
    executor: CpuExecutor, tmp_path: Path
) -> None:
    attempts: Queue[int] = Queue()

    def release(index: int, *_: object) -> None:
        attempts.put(index)
        if attempts.qsize() < 2:
            raise OSError("no contact")

    setting = Setting(executor, tmp_path / "scratch")
    registry = SessionRegistry(
        executor,
        DeviceTable.of(setting.membership),
        setting.membership,
        Policy(suspends=True, lost_at_most=2),
        setting.scratch,
        release,
    )
    notified = (SliceMember(0, 1, True), SliceMember(1, 1, True, notice=Notice("SIGTERM", 60.0)))
    registry.on_membership(Membership("tpuv6e:2x2", True, notified))
    wait_until(lambda: attempts.qsize() == 2)
    registry.close_all()
    setting.registry.close_all()
