# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Slices that go and return, and programs that notice nothing but a pause."""

from collections.abc import Callable
from pathlib import Path

from tests.emulator.proxy.conftest import free_address
from tests.emulator.proxy.harness import Client, Proxy

from pathways_emulator.membership import Notice, SliceMember

MEBIBYTE = 1 << 20

LOST_TO_OTHERS = "DATA_LOSS: slice 1: it is suspended, and nothing of this program is on it"


def test_arrays_of_every_kind_come_back_bit_by_bit(
    proxy: Proxy, start_client: Callable[..., Client]
) -> None:
    client = start_client("kinds")
    client.expect("full")
    client.say("look")
    client.expect("same")
    proxy.suspend(1)
    assert [path.stat().st_mode & 0o777 for path in proxy.saved_files()] == [0o600]
    assert proxy.saved_files()[0].parent.stat().st_mode & 0o777 == 0o700
    client.say("look")
    proxy.suspend(0)  # while the other one is away
    proxy.revive(1)
    proxy.revive(0)
    client.expect("same")
    client.say("look")
    client.expect("same")
    assert proxy.saved_files() == []
    client.say("finish")
    client.finish()


def test_a_training_program_computes_the_same_bits_across_suspensions(
    proxy: Proxy, start_client: Callable[..., Client]
) -> None:
    client = start_client("steady")
    client.expect("trained")
    client.say("again")
    for index, step in ((1, 16), (0, 56)):
        while client.hear() != f"step {step}":
            pass
        proxy.suspend(index)
        proxy.revive(index)
    while (line := client.hear()).startswith("step"):
        pass
    assert line == "same"
    client.finish()


def test_memory_is_given_back_while_a_slice_is_suspended(proxy: Proxy, pause: Client) -> None:
    assert pause.asked("fill 32") == "ok"  # on each of four chips
    full = proxy.resident_bytes()
    proxy.notify(1)
    proxy.expect_release(1, "saved")
    empty = proxy.resident_bytes()
    assert full - empty > 0.9 * 128 * MEBIBYTE, (full, empty)
    assert sum(path.stat().st_size for path in proxy.saved_files()) > 32 * MEBIBYTE
    proxy.lose(1, "released")
    proxy.revive(1)
    assert pause.asked("use") == "ok"


def test_other_slices_work_while_one_is_suspended(
    proxy: Proxy, pause: Client, tmp_path: Path
) -> None:
    assert pause.asked("make") == "ok"
    proxy.suspend(1)
    assert pause.asked("use 0") == "ok"
    pause.say("use")
    # A program that starts now has nothing on the slice, and does not wait for it.
    with Client("pause", proxy, tmp_path / "late.log") as late:
        late.expect("ready")
        assert LOST_TO_OTHERS in late.asked("fresh 1")
        assert late.asked("fresh 0") == "ok"
        assert LOST_TO_OTHERS in late.asked("make")
        assert not pause.answers_within(0.1)
        proxy.revive(1)
        pause.expect("ok")
        for words in ("fresh 1", "make", "use"):
            assert late.asked(words) == "ok", words
    proxy.wait_until(lambda: not proxy.saved_files())


def test_a_program_that_was_there_before_does_not_wait_for_a_slice_it_has_nothing_on(
    proxy: Proxy, pause: Client, tmp_path: Path
) -> None:
    with Client("pause", proxy, tmp_path / "other.log") as other:
        other.expect("ready")
        assert other.asked("fresh 0") == "ok"
        assert pause.asked("make") == "ok"
        proxy.suspend(1)
        assert LOST_TO_OTHERS in other.asked("fresh 1")
        assert other.asked("fresh 0") == "ok"
        proxy.revive(1)
        assert other.asked("fresh 1") == "ok"
        assert pause.asked("use") == "ok"


def test_a_slice_without_any_data_is_gone_until_it_is_back(tmp_path: Path) -> None:
    with (
        Proxy(free_address(), "tpuv6e:2x2", 2, tmp_path / "proxy.log") as proxy,
        Client("pause", proxy, tmp_path / "client.log") as client,
    ):
        client.expect("ready")
        assert client.asked("fresh 0") == "ok"
        for _ in range(2):
            proxy.notify(1)
            proxy.expect_release(1, "there was nothing on it to be saved")
            assert proxy.saved_files() == []
            lost = "DATA_LOSS: slice 1: SIGTERM, and there was nothing on it to be saved"
            assert lost in client.asked("fresh 1")
            proxy.lose(1, "released")
            assert lost in client.asked("fresh 1")
            assert client.asked("fresh 0") == "ok"
            proxy.revive(1)
        assert client.asked("make") == "ok"
        proxy.suspend(1)
        client.say("use")
        assert not client.answers_within(0.1)
        proxy.revive(1)
        client.expect("ok")


def test_a_session_that_ends_while_a_slice_is_suspended_leaves_no_file(
    proxy: Proxy, tmp_path: Path
) -> None:
    with Client("pause", proxy, tmp_path / "client.log") as client:
        client.expect("ready")
        assert client.asked("make") == "ok"
        others = len(proxy.saved_files())
        proxy.suspend(1)
        assert len(proxy.saved_files()) > others
    proxy.wait_until(lambda: len(proxy.saved_files()) <= 1)
    proxy.revive(1)
    proxy.wait_until(lambda: not proxy.saved_files())


def test_a_slice_that_gets_a_notice_as_it_returns_is_sent_away_with_its_data_still_saved(
    proxy: Proxy, pause: Client
) -> None:
    assert pause.asked("make") == "ok"
    proxy.suspend(1)
    pause.say("use")
    following = proxy.membership.slices[1].incarnation + 1
    proxy.apply(SliceMember(1, following, True, notice=Notice("SIGTERM again", 60.0)))
    proxy.expect_release(1, "saved")
    proxy.lose(1, "released")
    assert not pause.answers_within(0.2)
    proxy.revive(1)
    pause.expect("ok")


def test_without_suspending_a_slice_with_a_notice_is_used_until_its_end(tmp_path: Path) -> None:
    log = tmp_path / "proxy.log"
    with (
        Proxy(free_address(), "tpuv6e:2x2", 2, log, mode="forward") as proxy,
        Client("pause", proxy, tmp_path / "client.log") as client,
    ):
        client.expect("ready")
        proxy.notify(1)
        for words in ("make", "use", "fresh"):
            client.say(words)
            client.expect("ok")
        assert proxy.saved_files() == []
        proxy.lose(1, "host 0 got SIGTERM")
        client.say("use")
        assert "DATA_LOSS: slice 1: host 0 got SIGTERM" in client.hear()
        client.say("use 0")
        client.expect("ok")
