# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Slices that get a notice while nobody, or somebody else, has data on them."""

from pathlib import Path

import pytest
from tests.unit.emulator_proxy.setting import (
    HANDLE,
    TIMEOUT_S,
    Gate,
    Setting,
    assert_whole,
    wait_until,
)

from pathways_emulator.proxy.arrays import Array
from pathways_emulator.proxy.cpu_executor import CpuExecutor
from pathways_emulator.proxy.session import Session
from pathways_emulator.proxy.status import NotYet

NOTHING_HERE = "slice 1: it is suspended, and nothing of this program is on it"


def wait_until_usable(session: Session) -> None:
    wait_until(lambda: session.arrays.health.error_of([1]) is None)


def test_a_suspended_slice_is_lost_until_it_is_back_to_sessions_without_data_on_it(
    setting: Setting,
) -> None:
    early = setting.registry.open(lambda _: None)
    setting.suspend()
    late = setting.registry.open(lambda _: None)
    assert setting.array() is None  # the one that has data waits
    gate = setting.scratch.read_gate = Gate()
    setting.apply(1, 2, True)
    assert gate.reached.wait(TIMEOUT_S)
    for session in (early, late):
        assert not session.arrays.health.held
        error = session.arrays.health.error_of([1])
        assert error is not None
        assert error.message == NOTHING_HERE
        assert session.arrays.health.error_of([0]) is None
    gate.may_pass.set()
    assert_whole(setting)
    for session in (early, late):
        wait_until_usable(session)
        assert session.arrays.health.incarnations([0, 1]) == ((0, 1), (1, 2))


def test_a_session_is_held_until_it_is_known_whether_it_has_data_on_the_slice(
    setting: Setting,
) -> None:
    setting.scratch.write_gate = Gate()
    setting.apply(1, 1, True, notice=True)
    assert setting.scratch.write_gate.reached.wait(TIMEOUT_S)
    late = setting.registry.open(lambda _: None)
    with pytest.raises(NotYet):
        late.arrays.health.error_of([1])
    setting.scratch.write_gate.may_pass.set()
    assert setting.released.get(timeout=TIMEOUT_S)[:2] == (1, 1)
    error = late.arrays.health.error_of([1])
    assert error is not None
    assert error.message == NOTHING_HERE


def test_a_slice_without_data_is_gone_after_notice_and_its_next_run_is_used_at_once(
    setting: Setting,
) -> None:
    setting.session.arrays.remove([HANDLE])
    setting.apply(1, 1, True, notice=True)
    released = setting.released.get(timeout=TIMEOUT_S)
    assert released == (1, 1, "there was nothing on it to be saved")
    error = setting.session.arrays.health.error_of([0, 1])
    assert error is not None
    assert error.message == "slice 1: SIGTERM, and there was nothing on it to be saved"
    assert not setting.files()
    setting.apply(1, 1, False)
    assert setting.session.arrays.health.error_of([1]) is error
    setting.apply(1, 2, True)
    assert setting.session.arrays.health.error_of([1]) is None


def test_a_session_that_forgets_its_last_data_on_a_suspended_slice_is_held_no_longer(
    setting: Setting,
) -> None:
    whole = setting.array()
    assert whole is not None
    setting.session.arrays.insert([HANDLE + 1], [Array(whole.spec, whole.value, ((0, 1), (1, 1)))])
    setting.suspend()
    setting.session.arrays.remove([HANDLE])
    assert setting.session.arrays.health.held == {1}
    setting.session.arrays.remove([HANDLE + 1])
    error = setting.session.arrays.health.error_of([1])
    assert error is not None
    assert error.message == NOTHING_HERE
    setting.apply(1, 2, True)
    wait_until_usable(setting.session)
    wait_until(lambda: not setting.files())


def test_a_session_whose_saved_data_is_of_no_use_any_more_is_held_no_longer(
    setting: Setting,
) -> None:
    setting.suspend()
    setting.apply(0, 1, False)  # The array lies on both.
    array = setting.array()
    assert array is not None
    assert array.error is not None
    assert array.error.message == "slice 0: ended"
    error = setting.session.arrays.health.error_of([1])
    assert error is not None
    assert error.message == NOTHING_HERE
    setting.apply(1, 2, True)
    wait_until_usable(setting.session)


def test_sessions_do_not_end_for_a_slice_without_data(
    executor: CpuExecutor, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    setting = Setting(executor, tmp_path / "scratch", lost_at_most=0)
    setting.session.arrays.remove([HANDLE])
    setting.apply(1, 1, True, notice=True)
    assert setting.released.get(timeout=TIMEOUT_S)[:2] == (1, 1)
    setting.apply(1, 1, False)
    setting.apply(1, 2, False)
    setting.apply(1, 2, True)
    assert setting.session.arrays.health.error_of([0, 1]) is None
    assert "all sessions end" not in caplog.text
    setting.apply(1, 2, False)
    assert "slices 1 are lost: 1 at once" in caplog.text
    assert "all sessions end" in caplog.text
    setting.registry.close_all()
