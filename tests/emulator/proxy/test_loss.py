# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The loss of a slice as programs see it."""

import time
from collections.abc import Callable

import pytest
from tests.emulator.proxy.harness import Client, Proxy

from pathways_emulator.membership import SliceMember

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


@pytest.mark.parametrize(("work", "waits"), [("wait", 2), ("queue", 1)])
def test_whoever_waits_for_a_lost_slice_fails_at_once(
    proxy: Proxy, start_client: Callable[..., Client], work: str, waits: int
) -> None:
    client = start_client("busy")
    client.expect("ready")
    took: list[float] = []
    # The time includes what the system's scheduler takes on a loaded machine, so the best counts.
    # Waiters that wait for the computation take seconds every time.
    while len(took) < 3 and min(took, default=AT_ONCE_S) >= AT_ONCE_S:
        client.say(work)
        client.expect("computing")
        start = time.monotonic()
        proxy.lose(1)
        for _ in range(waits):
            client.expect("failed")
        took.append(time.monotonic() - start)
        client.expect("done")
        proxy.revive(1)
    assert min(took) < AT_ONCE_S, took
    client.say("finish")
    client.finish()
