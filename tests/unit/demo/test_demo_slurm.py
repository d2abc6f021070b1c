# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What the demo reads from Slurm and from processes of its nodes."""

import pytest

from demo_cluster import parse_options
from demo_slurm import cluster_options, restarts_in, workers_among

WORKER = {"PATHWAYS_SLICE_INDEX": "1", "PATHWAYS_HOST_INDEX": "0"}


def test_a_worker_is_known_by_its_slice_and_host() -> None:
    environments = {
        1: WORKER,
        2: {**WORKER, "PATHWAYS_HOST_INDEX": "1"},
        3: {**WORKER, "PATHWAYS_SLICE_INDEX": "0"},
        4: {"PATHWAYS_SLICE_INDEX": "1"},  # srun: of the slice, but no host of it
        5: {},
    }
    assert workers_among(environments, 1, 0) == [1]
    assert workers_among(environments, 1, 1) == [2]
    assert workers_among(environments, 2, 0) == []


@pytest.mark.parametrize(
    ("said", "count"),
    [
        ("2_1|1|\n", 1),
        ("2_1 |0| \n", 0),
        ("2_0|3|\n2_1|2|\n2_10|4|\n", 2),
        ("2_10|4|\n", None),
        ("", None),
    ],
)
def test_restarts_are_those_of_the_task(said: str, count: int | None) -> None:
    assert restarts_in(said, "2_1") == count


def test_keeper_takes_what_the_demo_asks_for() -> None:
    from pathlib import Path

    asked = cluster_options(Path("/tmp/d"), slices=4, hosts=3, chips_per_host=8)
    argv = "--dir /tmp/d/slurm --slices 4 --hosts-per-slice 3 --chips-per-host 8 --cred-expire-s 5"
    assert parse_options(argv.split()) == asked
    assert asked.faults() == []
