# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The names of a cluster's interfaces."""

from pathlib import Path

import pytest
from slurm.devcluster import links
from slurm.devcluster.options import MAX_NODES


def test_names_fit_the_kernel_and_are_of_one_cluster() -> None:
    one, other = Path("/tmp/one"), Path("/tmp/other")
    assert len(links.link_of(one, MAX_NODES - 1)) <= 15
    assert links.link_of(one, 3).startswith(links.bridge_of(one))
    assert links.bridge_of(one) != links.bridge_of(other)
    assert links.bridge_of(one) == links.bridge_of(Path("/tmp/one"))


def test_only_the_clusters_own_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "_CLASS", tmp_path)
    directory = Path("/tmp/one")
    bridge = links.bridge_of(directory)
    for name in ("lo", "eth0", bridge, f"{bridge}n0", links.bridge_of(Path("/tmp/other"))):
        (tmp_path / name).touch()
    assert links.existing(directory) == [bridge, f"{bridge}n0"]


def test_nothing_is_run_where_there_is_nothing_to_remove(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "PATH", "/nowhere")
    links.remove(Path("/tmp/no-such-cluster"))
    with pytest.raises(links.LinkError, match="ip -batch - did not run"):
        links.change(["link set dev none up"])
