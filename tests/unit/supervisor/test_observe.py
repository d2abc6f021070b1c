# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""A look at a world that can't be seen whole."""

import socket
from collections.abc import Iterator
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from pathways_slurm.component import ComponentProcess, ComponentStatus
from pathways_slurm.model import Component, Memory
from pathways_slurm.observe import Observer
from pathways_slurm.processes import ProcessIdentity
from pathways_slurm.scheduler.local import LocalScheduler
from pathways_slurm.states import ServicePhase

NOBODY = ProcessIdentity(1, 0, "none")


class _Unreadable(ComponentProcess):
    def status(self) -> ComponentStatus:
        raise OSError(5, "Input/output error")


@pytest.fixture
def listening() -> Iterator[tuple[str, int]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[:2]


def _observer(tmp_path: Path, rm: tuple[str, int], published: bool | None) -> Observer:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        nobody = closed.getsockname()[:2]
    process = _Unreadable(tmp_path / "rm.json", tmp_path / "rm.log", NOBODY)
    return Observer(
        scheduler=LocalScheduler(tmp_path / "local", IPv4Network("127.69.0.0/16")),
        processes=dict.fromkeys(Component, process),
        endpoints={Component.RM: rm, Component.PROXY: nobody},
        worker_port=29001,
        published=lambda: published,
    )


def test_a_component_whose_file_can_not_be_read_is_not_gone(
    tmp_path: Path, listening: tuple[str, int]
) -> None:
    seen = _observer(tmp_path, listening, published=False).look(Memory("run"), "")
    assert seen.components[Component.RM].alive
    assert seen.components[Component.RM].answers
    assert seen.components[Component.PROXY].alive
    assert not seen.components[Component.PROXY].answers


@pytest.mark.parametrize(
    ("phase", "published"),
    [
        (ServicePhase.STARTING, False),
        (ServicePhase.READY, True),
        (ServicePhase.DEGRADED, True),
    ],
)
def test_a_cluster_env_that_can_not_be_read_is_as_it_was(
    tmp_path: Path, listening: tuple[str, int], phase: ServicePhase, published: bool
) -> None:
    observer = _observer(tmp_path, listening, published=None)
    assert observer.look(Memory("run", phase), "").published is published
