# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Of two orders for a node, the one that was given last counts, whichever is followed first."""

from pathlib import Path

from slurm.devcluster.power import in_order


def test_an_order_that_was_overtaken_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "power").mkdir()
    with in_order(tmp_path, ["a", "b"], 1) as due:
        assert due == ["a", "b"]
    with in_order(tmp_path, ["b"], 3) as due:
        assert due == ["b"]
    with in_order(tmp_path, ["b", "a"], 2) as due:
        assert due == ["a"]
    with in_order(tmp_path, ["a", "b"], 4) as due:
        assert due == ["a", "b"]
