# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""A look at a world that can't be seen whole."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from pathways_slurm import maintenance, notices
from pathways_slurm.component import ComponentProcess, ComponentStatus
from pathways_slurm.maintenance import Request
from pathways_slurm.model import Component, Memory
from pathways_slurm.notices import Notices
from pathways_slurm.observe import Observer
from pathways_slurm.paths import ServicePaths
from pathways_slurm.probe import Prober, Proof
from pathways_slurm.processes import ProcessIdentity
from pathways_slurm.runtime_files import Orders, Report, SliceReport
from pathways_slurm.scheduler.local import LocalScheduler
from pathways_slurm.states import ServicePhase

NOBODY = ProcessIdentity(1, 0, "none")
REPORT = Report(True, False, (SliceReport(0, 1, alive=True),))


class _Unreadable(ComponentProcess):
    def status(self) -> ComponentStatus:
        raise OSError(5, "Input/output error")


@pytest.fixture
def speaking() -> Iterator[tuple[str, int]]:
    """The address of a server that greets whoever connects."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet() -> None:
            with contextlib.suppress(OSError):
                while True:
                    with server.accept()[0] as connection:
                        connection.sendall(b"hello\n")
                        connection.recv(4096)

        thread = threading.Thread(target=greet)
        thread.start()
        yield server.getsockname()[:2]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.fixture
def paths(tmp_path: Path) -> ServicePaths:
    found = ServicePaths(tmp_path)
    found.state.mkdir()
    return found


@pytest.fixture
def prober() -> Iterator[Prober]:
    with Prober(timeout_s=0.5) as prober:
        yield prober


def _observer(
    paths: ServicePaths,
    prober: Prober,
    rm: tuple[str, int] = ("127.0.0.1", 1),
    published: bool | None = False,
) -> Observer:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        nobody = closed.getsockname()[:2]
    process = _Unreadable(paths.directory / "rm.json", paths.directory / "rm.log", NOBODY)
    return Observer(
        scheduler=LocalScheduler(paths.local_arrays, IPv4Network("127.69.0.0/16")),
        processes=dict.fromkeys(Component, process),
        endpoints={Component.RM: rm, Component.PROXY: nobody},
        worker_port=29001,
        worker_proof=Proof.SPEAKS,
        prober=prober,
        published=lambda: published,
        paths=paths,
    )


def test_a_component_whose_file_can_not_be_read_is_not_gone(
    paths: ServicePaths, prober: Prober, speaking: tuple[str, int]
) -> None:
    seen = _observer(paths, prober, speaking).look(Memory("run"), "")
    assert seen.components[Component.RM].alive
    assert seen.components[Component.RM].answers
    assert seen.components[Component.PROXY].alive
    assert not seen.components[Component.PROXY].answers


def test_a_component_that_only_takes_connections_does_not_answer(
    paths: ServicePaths, prober: Prober
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as stopped:
        observer = _observer(paths, prober, stopped.getsockname()[:2])
        assert not observer.look(Memory("run"), "").components[Component.RM].answers


@pytest.mark.parametrize(
    ("phase", "published"),
    [
        (ServicePhase.STARTING, False),
        (ServicePhase.READY, True),
        (ServicePhase.DEGRADED, True),
    ],
)
def test_a_cluster_env_that_can_not_be_read_is_as_it_was(
    paths: ServicePaths, prober: Prober, phase: ServicePhase, published: bool
) -> None:
    observer = _observer(paths, prober, published=None)
    assert observer.look(Memory("run", phase), "").published is published


def test_where_nothing_was_written_there_is_nothing_to_read(
    paths: ServicePaths, prober: Prober
) -> None:
    seen = _observer(paths, prober).look(Memory("run"), "")
    assert (seen.report, seen.orders, seen.announced) == (None, Orders(), None)
    assert (seen.acknowledged, seen.maintenance, seen.faults) == (frozenset(), {}, {})


def test_what_others_wrote_is_read(paths: ServicePaths, prober: Prober) -> None:
    REPORT.write(paths.report)
    Orders(shutdown="over").write(paths.orders)
    notices.write(paths.notices, Notices("run", 3))
    notices.acknowledge(paths.acknowledgements, 1, 2)
    maintenance.make(paths.maintenance, 1, Request(2000.0, "disk", 1000.0))
    seen = _observer(paths, prober).look(Memory("run"), "")
    assert (seen.report, seen.orders) == (REPORT, Orders(shutdown="over"))
    assert seen.announced == Notices("run", 3)
    assert seen.acknowledged == {(1, 2)}
    assert seen.maintenance == {1: Request(2000.0, "disk", 1000.0)}


def test_what_is_damaged_says_nothing_and_is_said(paths: ServicePaths, prober: Prober) -> None:
    for file in (paths.report, paths.orders, paths.notices):
        file.write_text("{")
    paths.maintenance.touch()
    paths.acknowledgements.touch()
    seen = _observer(paths, prober).look(Memory("run"), "")
    assert (seen.report, seen.orders, seen.announced) == (None, None, None)
    assert (seen.acknowledged, seen.maintenance) == (frozenset(), None)
    assert set(seen.faults) == {
        "the resource manager's report",
        "the orders",
        "the notices",
        "acknowledgements",
        "requests for maintenance",
    }
    assert str(paths.report) in seen.faults["the resource manager's report"]


def test_a_bad_request_for_maintenance_hides_no_other(paths: ServicePaths, prober: Prober) -> None:
    maintenance.make(paths.maintenance, 1, Request(2000.0, "disk", 1000.0))
    (paths.maintenance / "slice-2.json").write_text("{}")
    seen = _observer(paths, prober).look(Memory("run"), "")
    assert seen.maintenance is not None
    assert list(seen.maintenance) == [1]
    assert "slice-2.json" in seen.faults["a request for maintenance"]


def test_the_report_of_a_resource_manager_that_is_gone_says_nothing(
    paths: ServicePaths, prober: Prober
) -> None:
    REPORT.write(paths.report)
    observer = _observer(paths, prober)
    never_started = ComponentProcess(paths.state / "none.json", paths.state / "none.log", NOBODY)
    observer = replace(observer, processes=dict.fromkeys(Component, never_started))
    assert observer.look(Memory("run"), "").report is None


def test_the_stamps_tell_of_each_change(paths: ServicePaths, prober: Prober) -> None:
    observer = _observer(paths, prober)
    stamps = [observer.stamps()]
    REPORT.write(paths.report)
    stamps.append(observer.stamps())
    REPORT.write(paths.report)
    stamps.append(observer.stamps())
    notices.acknowledge(paths.acknowledgements, 1, 2)
    stamps.append(observer.stamps())
    maintenance.make(paths.maintenance, 1, Request(2000.0, "disk", 1000.0))
    stamps.append(observer.stamps())
    assert len(set(stamps)) == len(stamps)
    Orders(shutdown="our own").write(paths.orders)
    assert observer.stamps() == stamps[-1]


def test_a_component_that_begins_to_answer_is_seen_at_a_glance(
    paths: ServicePaths, prober: Prober, speaking: tuple[str, int]
) -> None:
    observer = _observer(paths, prober, rm=speaking)
    assert observer.begun_to_answer([Component.RM, Component.PROXY])
    assert not observer.begun_to_answer([Component.PROXY])
    assert not observer.begun_to_answer([])
