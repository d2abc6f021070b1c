# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What happens while a slice's data is on its way: the scratch location decides how far it gets."""

from pathlib import Path
from queue import Queue

from tests.unit.emulator_proxy.setting import (
    HANDLE,
    TIMEOUT_S,
    Gate,
    Setting,
    assert_whole,
    wait_until,
)

from pathways_emulator.membership import Membership, Notice, SliceMember
from pathways_emulator.proxy.arrays import Array
from pathways_emulator.proxy.cpu_executor import CpuExecutor
from pathways_emulator.proxy.devices import DeviceTable
from pathways_emulator.proxy.registry import SessionRegistry
from pathways_emulator.proxy.slices import Policy


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
