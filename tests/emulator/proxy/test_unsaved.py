# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Suspended slices whose data can't be saved or read again: lost with the reason, and no hang."""

import resource
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.emulator.proxy.conftest import free_address
from tests.emulator.proxy.harness import Client, Proxy

from pathways_emulator.membership import Notice, SliceMember

# From the end of a slice to the error in a program that waits for it.
AT_ONCE_S = 5.0


def cut(path: Path) -> None:
    """Leaves out the end of a file."""
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 100)


def change(path: Path) -> None:
    """Flips one bit of a file's data."""
    content = bytearray(path.read_bytes())
    content[-64] ^= 1  # the first byte of the last shard
    path.write_bytes(content)


def change_header(path: Path) -> None:
    """Flips one bit of a file's header."""
    content = bytearray(path.read_bytes())
    content[60] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (change, "the checksum of shard"),
        (change_header, "its header is not the one that was written"),
        (cut, "it ends in the middle of shard"),
        (Path.unlink, "can't be read: No such file or directory"),
    ],
)
def test_damaged_data_is_lost_and_the_slice_is_usable(
    proxy: Proxy, pause: Client, damage: Callable[[Path], None], message: str
) -> None:
    assert pause.asked("make") == "ok"
    proxy.suspend(1)
    [path] = proxy.saved_files()
    damage(path)
    pause.say("use 1")
    proxy.revive(1)
    heard = pause.hear()
    assert f"DATA_LOSS: slice 1: its saved data {path} is damaged: {message}" in heard
    assert "DATA_LOSS: slice 1: its saved data" in pause.asked("use both")
    for words in ("use 0", "fresh", "make", "use"):
        assert pause.asked(words) == "ok", words
    proxy.wait_until(lambda: not proxy.saved_files())


def test_an_abandoned_slice_is_lost_and_its_files_are_removed(proxy: Proxy, pause: Client) -> None:
    assert pause.asked("make") == "ok"
    proxy.suspend(1)
    pause.say("use 1")
    assert not pause.answers_within(0.1)
    incarnation = proxy.membership.slices[1].incarnation
    proxy.apply(SliceMember(1, incarnation, False, "released", abandoned="cancelled by a user"))
    assert "DATA_LOSS: slice 1: it was suspended and will not return: cancelled by" in pause.hear()
    proxy.wait_until(lambda: not proxy.saved_files())
    assert pause.asked("use 0") == "ok"
    proxy.revive(1)
    assert pause.asked("fresh") == "ok"


def test_a_slice_that_dies_before_it_is_saved_is_lost_at_once(proxy: Proxy, pause: Client) -> None:
    assert pause.asked("make") == "ok"
    assert pause.asked("spin 8") == "ok"
    proxy.notify(1)
    pause.say("use 1")
    assert not pause.answers_within(0.2)
    start = time.monotonic()
    proxy.lose(1)
    for _ in range(2):  # who waits for the computation, and who was held
        heard = pause.hear()
        assert "DATA_LOSS: slice 1: host 0 ended: killed; its data was not saved" in heard
    assert time.monotonic() - start < AT_ONCE_S
    assert pause.asked("use 0") == "ok"
    proxy.revive(1)
    assert pause.asked("fresh") == "ok"
    assert proxy.saved_files() == []


def test_what_does_not_end_in_time_is_lost_and_the_workers_may_end(
    proxy: Proxy, pause: Client
) -> None:
    assert pause.asked("make") == "ok"
    assert pause.asked("spin 8") == "ok"
    start = time.monotonic()
    proxy.notify(1, left_s=2.0)
    pause.say("use 1")
    lost = "slice 1: SIGTERM, and its data could not be saved: the notice did not leave enough time"
    for _ in range(2):
        assert f"DATA_LOSS: {lost}" in pause.hear()
    proxy.expect_release(1, lost)
    assert time.monotonic() - start < 1.0 + AT_ONCE_S
    # It is still alive, but given up.
    assert f"DATA_LOSS: {lost}" in pause.asked("fresh")
    proxy.lose(1, "released")
    proxy.revive(1)
    assert pause.asked("fresh") == "ok"


def test_computations_end_before_their_results_are_saved(proxy: Proxy, pause: Client) -> None:
    assert pause.asked("make") == "ok"
    assert pause.asked("spin 1") == "ok"
    proxy.notify(1)
    proxy.expect_release(1, "saved")
    proxy.lose(1, "released")
    proxy.revive(1)
    # Whoever waits for the computation's end hears of it now at the latest: a question that came
    # after the notice was held.
    pause.expect("ok")
    assert pause.asked("use") == "ok"


def test_a_full_scratch_location_loses_the_data_with_that_reason(tmp_path: Path) -> None:
    with (
        Proxy(
            free_address(),
            "tpuv6e:2x2",
            2,
            tmp_path / "proxy.log",
            limits={resource.RLIMIT_FSIZE: 1 << 20},
        ) as proxy,
        Client("pause", proxy, tmp_path / "client.log") as client,
    ):
        client.expect("ready")
        assert client.asked("fill 2") == "ok"
        proxy.notify(1)
        reason = "slice 1: SIGTERM, and its data could not be saved: "
        assert f"DATA_LOSS: {reason}" in client.asked("use")
        proxy.expect_release(1, "File too large")
        assert proxy.saved_files() == []
        proxy.lose(1, "released")
        proxy.revive(1)
        assert client.asked("fresh") == "ok"


def test_locations_that_can_not_be_written_lose_the_data_with_that_reason(
    tmp_path: Path,
) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.touch()
    for scratch, reason in (
        (str(in_the_way), "Not a directory"),
        ("gs://no-such-bucket-of-ours", "gs://no-such-bucket-of-ours/suspend/test-"),
    ):
        log = tmp_path / "proxy.log"
        with (
            Proxy(free_address(), "tpuv6e:2x2", 2, log, scratch=scratch) as proxy,
            Client("pause", proxy, tmp_path / "client.log") as client,
        ):
            client.expect("ready")
            assert client.asked("make") == "ok"
            proxy.notify(1)
            heard = client.asked("use 1")
            assert "DATA_LOSS: slice 1: SIGTERM, and its data could not be saved: " in heard
            assert reason in heard
            proxy.expect_release(1, reason)


def test_two_slices_that_go_at_once_come_back_one_by_one(proxy: Proxy, pause: Client) -> None:
    proxy.drain_releases()
    assert pause.asked("make") == "ok"
    proxy.notify(0, 1)
    proxy.expect_releases(0, 1)
    assert len(proxy.saved_files()) == 2
    for index in (0, 1):
        member = proxy.membership.slices[index]
        proxy.apply(SliceMember(index, member.incarnation, False, "released"))
    pause.say("use 1")
    proxy.revive(0)
    assert not pause.answers_within(0.2)
    proxy.revive(1)
    pause.expect("ok")
    assert pause.asked("use") == "ok"
    proxy.wait_until(lambda: not proxy.saved_files())


def test_one_slice_may_die_while_the_other_one_is_suspended(proxy: Proxy, pause: Client) -> None:
    proxy.drain_releases()
    assert pause.asked("make") == "ok"
    proxy.suspend(1)
    proxy.lose(0)
    # What lay on both is lost; what lay on the suspended slice is not.
    assert "DATA_LOSS: slice 0: host 0 ended: killed" in pause.asked("use both")
    pause.say("use 1")
    assert not pause.answers_within(0.1)
    proxy.revive(1)
    pause.expect("ok")
    proxy.revive(0)
    incarnation = proxy.membership.slices[1].incarnation
    proxy.apply(SliceMember(1, incarnation, True, notice=Notice("SIGTERM", 60.0)))
    proxy.expect_release(1, "saved")
    proxy.revive(1)  # without a gap
    assert pause.asked("use 1") == "ok"
