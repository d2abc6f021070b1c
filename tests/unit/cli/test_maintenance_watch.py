# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Which slices have given their nodes back, by a service's status."""

from typing import Any

import pytest

from pathways_slurm.cli.maintenance_watch import Watch


def item(index: int, state: str, *nodes: str, reason: str = "why") -> dict[str, Any]:
    return {"index": index, "state": state, "nodes": list(nodes), "reason": reason}


def status(*items: dict[str, Any]) -> dict[str, Any]:
    return {"slices": list(items)}


def left(watch: Watch) -> list[int]:
    return [entry["index"] for entry in watch.left]


@pytest.mark.parametrize("state", ["READY", "STARTING", "UNREACHABLE", "ENDING", "UNKNOWN", "NEW"])
def test_a_slice_that_may_have_nodes_is_waited_for(state: str) -> None:
    watch = Watch({1: 100.0})
    for now in (0.0, 50.0):
        watch.take(status(item(0, "MAINTENANCE"), item(1, state, "a", "b")), now)
        assert left(watch) == [1]


@pytest.mark.parametrize("state", ["MAINTENANCE", "FAILED", "CANCELLED", "ENDED"])
def test_a_slice_that_is_down_is_not(state: str) -> None:
    watch = Watch({1: 100.0})
    watch.take(status(item(1, state)), 0.0)
    assert left(watch) == []


def test_a_slice_that_waits_for_nodes_may_be_about_to_get_some() -> None:
    watch = Watch({1: 100.0})
    pending, starting = status(item(1, "PENDING")), status(item(1, "STARTING", "a"))
    for seen, now, waits in (
        (pending, 10.0, True),
        (pending, 20.0, True),
        (starting, 22.0, True),
        (pending, 24.0, True),
        (pending, 38.0, True),
        (pending, 39.0, False),
    ):
        watch.take(seen, now)
        assert left(watch) == ([1] if waits else [])


def test_a_status_without_the_slice_says_nothing_of_it() -> None:
    watch = Watch({1: 100.0})
    watch.take(status(), 0.0)
    assert left(watch) == [1]
    assert watch.progress(0.0) == [
        "slice 1 UNKNOWN, 1m40s left: the status has no word of it",
    ]


def test_who_is_there_and_for_how_long() -> None:
    watch = Watch({1: 100.0, 2: 30.0})
    watch.take(status(item(1, "ENDING", "a", "b"), item(2, "READY", "c")), 40.0)
    assert watch.progress(40.0) == [
        "slice 1 ENDING on a, b, 1m00s left: why",
        "slice 2 READY on c, time is up: why",
    ]


def test_the_nodes_that_are_free_are_the_last_that_a_slice_had() -> None:
    watch = Watch(dict.fromkeys((1, 2, 3), 100.0))
    watch.take(status(item(1, "READY", "a", "b"), item(2, "READY", "c"), item(3, "FAILED")), 1.0)
    watch.take(status(item(1, "MAINTENANCE"), item(2, "CANCELLED", reason="by a user")), 2.0)
    assert left(watch) == []
    assert watch.summary() == [
        "slice 1 is down; its nodes are free: a, b",
        "slice 2 is down (CANCELLED: by a user); its nodes are free: c",
        "slice 3 is down (FAILED: why); it has no nodes",
    ]
