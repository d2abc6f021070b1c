# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The loss of a slice as programs see it."""

import time
from collections.abc import Callable

from pathways_emulator.membership import SliceMember

from tests.emulator.proxy.harness import Client, Proxy

# From the end of a slice to the error in the program that waits for its data.
AT_ONCE_S = 0.5


def test_data_of_a_lost_slice_is_an_error_and_other_data_is_not(
    proxy: Proxy, start_client: Callable[..., Client]
) -> None:
    client = start_client("loss")
    client.expect("ready")
    proxy.lose(1)
    client.say("lost")
    client.expect("seen")
    proxy.revive(1)
    client.say("revived")
    client.expect("seen")
    proxy.revive(1)  # a newer incarnation without a gap: the old one's data is gone too
    client.say("replaced")
    client.expect("seen")
    client.expect("ready")
    current = proxy.membership.slices[1].incarnation
    # The resource manager restarted, and has not heard of the slice yet.
    proxy.apply(SliceMember(1, 0, False, "has not registered"), settled=False)
    client.say("unsettled")
    client.expect("seen")
    client.expect("done")
    client.finish()
    proxy.apply(SliceMember(1, current, True))


def test_whoever_waits_for_a_lost_slice_fails_at_once(
    proxy: Proxy, start_client: Callable[..., Client]
) -> None:
    client = start_client("busy")
    client.expect("computing")
    lost_at = time.monotonic()
    proxy.lose(1)
    client.expect("failed")
    client.expect("failed")
    assert time.monotonic() - lost_at < AT_ONCE_S
    client.expect("done")
    proxy.revive(1)
    client.say("again")
    client.expect("computing")
    lost_at = time.monotonic()
    proxy.lose(1)
    client.expect("failed")
    assert time.monotonic() - lost_at < AT_ONCE_S
    client.say("finish")
    client.expect("done")
    client.finish()
    proxy.revive(1)
