# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Slices that go and return, and programs that notice nothing but a pause."""

from collections.abc import Callable

from tests.emulator.proxy.harness import Client, Proxy


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
