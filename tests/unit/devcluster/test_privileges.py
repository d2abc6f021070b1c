# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What is told to those who can't make nodes of namespaces."""

import os
import re

import pytest
from slurm.devcluster import links, privileges

ALL = "Name:\tpython\nCapPrm:\t0000000000000000\nCapEff:\t000001ffffffffff\nCapBnd:\t0\n"


def test_capabilities_that_are_not_in_force_are_named() -> None:
    assert privileges.missing_capabilities(ALL) == []
    without_admin = ALL.replace("000001ffffffffff", f"{0x1FFFFFFFFFF & ~(1 << 21):016x}")
    assert privileges.missing_capabilities(without_admin) == ["CAP_SYS_ADMIN"]
    # What Docker gives to a container's root.
    docker = ALL.replace("000001ffffffffff", "00000000a80425fb")
    assert privileges.missing_capabilities(docker) == ["CAP_NET_ADMIN", "CAP_SYS_ADMIN"]
    assert len(privileges.missing_capabilities("")) == 3


def test_an_ordinary_user_is_told_to_be_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 1234)
    (fault, *_) = privileges.lacking()
    assert re.search("take root, this is uid 1234.*; run it as root", fault)


def test_missing_programs_are_named_with_their_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "PATH", "/nowhere")
    assert privileges.lacking()[-1] == (
        "not installed: ip, unshare, nsenter, mount, hostname. What to do, as root: "
        "apt-get install --no-install-recommends iproute2 util-linux mount hostname"
    )
