# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""A schedule depends on its seed only, and has every kind as often as it should."""

from collections import Counter

from tests.chaos.schedule import schedule

_WEIGHTS = {"often": 3.0, "seldom": 1.0, "rarely": 0.25}


def _plan(seed: int, faults: int = 30) -> list[tuple[float, tuple[str, ...], float]]:
    return [(e.delay_s, e.order, e.dice.random()) for e in schedule(seed, faults, _WEIGHTS)]


def test_the_same_seed_gives_the_same_schedule() -> None:
    assert _plan(7) == _plan(7)
    assert _plan(7) != _plan(8)


def test_what_one_fault_draws_changes_no_other() -> None:
    quiet, greedy = schedule(7, 30, _WEIGHTS), schedule(7, 30, _WEIGHTS)
    for one, other in zip(quiet, greedy, strict=True):
        assert (one.delay_s, one.order) == (other.delay_s, other.order)
        for _ in range(one.number):
            other.dice.random()


def test_a_longer_schedule_begins_like_a_shorter_one() -> None:
    assert _plan(7, 30) == _plan(7, 60)[:30]


def test_each_kind_comes_first_as_often_as_its_weight_says() -> None:
    first = Counter(entry.order[0] for entry in schedule(1, 4000, _WEIGHTS))
    total = sum(_WEIGHTS.values())
    for kind, weight in _WEIGHTS.items():
        assert abs(first[kind] / 4000 - weight / total) < 0.03


def test_every_kind_is_in_every_order() -> None:
    assert all(set(entry.order) == set(_WEIGHTS) for entry in schedule(1, 20, _WEIGHTS))
