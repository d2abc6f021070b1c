# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""A slice that is about to go, with real processes: SIGTERM, snapshot and report, release, end."""

import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.emulator.control.processes import (
    NETWORK,
    PATIENCE_S,
    RM,
    WORKER_PORT,
    Cluster,
    Observer,
    Process,
)

from pathways_emulator import membership_client
from pathways_emulator.exit_codes import ExitCode
from pathways_emulator.membership import SliceMember
from pathways_slurm.runtime_files import Orders, Report, SliceOrder

# Far below the notices' time: something else must have ended the worker.
AT_ONCE_S = 5.0


class Files:
    """The two files between a supervisor, which the test is, and the resource manager."""

    def __init__(self, directory: Path) -> None:
        self.report = directory / "report.json"
        self.orders = directory / "orders.json"
        self.variables = {
            "PATHWAYS_REPORT_FILE": str(self.report),
            "PATHWAYS_ORDERS_FILE": str(self.orders),
        }

    def wait_report(self, predicate: Callable[[Report], bool]) -> Report:
        """Waits until the report is one for which the predicate holds."""
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            report = Report.read(self.report)
            if report is not None and predicate(report):
                return report
            if time.monotonic() > deadline_s:
                raise AssertionError(f"not reported in {PATIENCE_S} s: {report}")
            time.sleep(0.01)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def manager(cluster: Cluster, files: Files, slices: int = 1) -> Process:
    return cluster.manager(slices=slices, instance_type="tpuv6e:2x4", overrides=files.variables)


def worker(
    cluster: Cluster, slice_index: int, host: int, notice_s: float = 60.0, *, incarnation: int = 1
) -> Process:
    overrides = {"PATHWAYS_NOTICE_S": str(notice_s)}
    return cluster.worker(
        slice_index, host, shape="2x4", incarnation=incarnation, overrides=overrides
    )


def two_hosts(cluster: Cluster, observer: Observer, notice_s: float = 60.0) -> list[Process]:
    """Slice 0, alive."""
    hosts = [worker(cluster, 0, host, notice_s) for host in range(2)]
    observer.wait_alive(0, 1)
    for host in hosts:
        host.wait_for("is ready on")
    return hosts


def wait_noticed(observer: Observer) -> SliceMember:
    return observer.wait_until(lambda m: m.slices[0].notice is not None).slices[0]


def test_sigterm_to_one_host_is_a_notice_and_a_release_ends_all_hosts(
    cluster: Cluster, files: Files
) -> None:
    log = manager(cluster, files)
    observer = cluster.observer()
    hosts = two_hosts(cluster, observer)
    noticed_at = time.time()
    hosts[1].send(signal.SIGTERM)
    member = wait_noticed(observer)
    assert member.alive
    assert member.notice is not None
    assert member.notice.reason == "host 1 got SIGTERM"
    assert 60 - AT_ONCE_S < member.notice.left_s <= 60
    report = files.wait_report(lambda r: r.slices[0].notice is not None).slices[0]
    assert report.alive
    assert not report.released
    assert report.notice is not None
    assert report.notice.reason == "host 1 got SIGTERM"
    assert noticed_at + 60 <= report.notice.deadline <= noticed_at + 60 + AT_ONCE_S
    hosts[1].wait_for("got SIGTERM: slice 0 goes within 60 s; waiting for its data to be saved")

    # It is still a slice like any other: whoever asks for its port gets an answer, and the second
    # SIGTERM of a scheduler's grace time changes nothing.
    hosts[1].send(signal.SIGTERM)
    hosts[1].wait_for("got SIGTERM again")
    with socket.create_connection((f"{NETWORK}.1.2", WORKER_PORT), timeout=5) as connection:
        assert connection.makefile().readline().startswith("slice 0 host 1 incarnation 1")

    membership_client.release(RM, 0, 2, "of a run to come", PATIENCE_S)
    membership_client.release(RM, 0, 1, "its data is saved", PATIENCE_S)
    assert [host.exit_code(AT_ONCE_S) for host in hosts] == [ExitCode.ENDED] * 2
    assert "released: its data is saved" in hosts[0].text()
    lost = observer.wait_lost(0)
    assert lost == SliceMember(0, 1, False, "its data is saved")
    released = files.wait_report(lambda r: not r.slices[0].alive).slices[0]
    assert released.released
    assert released.notice == report.notice
    assert "slice 0 (incarnation 1) is released: its data is saved; told 2 to stop" in log.text()


def test_a_worker_under_notice_ends_when_its_time_has_passed(
    cluster: Cluster, files: Files
) -> None:
    manager(cluster, files)
    observer = cluster.observer()
    hosts = two_hosts(cluster, observer, notice_s=1.5)
    hosts[0].send(signal.SIGTERM)
    wait_noticed(observer)
    noticed_at_s = time.monotonic()
    assert hosts[0].exit_code() == ExitCode.ENDED
    assert time.monotonic() - noticed_at_s > 1.0
    reason = "host 0 left: the 1.5 s since SIGTERM have passed"
    assert observer.wait_lost(0).reason == reason
    assert hosts[1].exit_code() == ExitCode.STOPPED
    report = files.wait_report(lambda r: not r.slices[0].alive).slices[0]
    assert report.reason == reason
    assert report.notice is not None
    assert not report.released


def test_a_slice_that_dies_under_notice_is_lost_as_ever(cluster: Cluster, files: Files) -> None:
    manager(cluster, files)
    observer = cluster.observer()
    hosts = two_hosts(cluster, observer)
    hosts[0].send(signal.SIGTERM)
    wait_noticed(observer)
    hosts[1].kill()
    assert observer.wait_lost(0, AT_ONCE_S).reason == "host 1 ended: connection closed"
    assert hosts[0].exit_code(AT_ONCE_S) == ExitCode.STOPPED
    report = files.wait_report(lambda r: not r.slices[0].alive).slices[0]
    assert report.notice is not None
    assert not report.released


def test_sigint_ends_a_worker_under_notice_at_once(cluster: Cluster, files: Files) -> None:
    manager(cluster, files)
    observer = cluster.observer()
    hosts = two_hosts(cluster, observer)
    hosts[0].send(signal.SIGTERM)
    wait_noticed(observer)
    hosts[0].send(signal.SIGINT)
    assert hosts[0].exit_code(AT_ONCE_S) == ExitCode.ENDED
    assert observer.wait_lost(0).reason == "host 0 left: SIGINT"


def test_without_time_sigterm_ends_a_worker_at_once(cluster: Cluster, files: Files) -> None:
    manager(cluster, files)
    observer = cluster.observer()
    hosts = two_hosts(cluster, observer, notice_s=0)
    hosts[0].send(signal.SIGTERM)
    assert hosts[0].exit_code(AT_ONCE_S) == ExitCode.ENDED
    assert observer.wait_lost(0).reason == "host 0 left: SIGTERM"
    assert all(m.slices[0].notice is None for m in observer.history)


def test_a_restarted_resource_manager_hears_of_the_notice_and_its_time_left(
    cluster: Cluster, files: Files
) -> None:
    first = manager(cluster, files)
    observer = cluster.observer()
    hosts = two_hosts(cluster, observer)
    hosts[0].send(signal.SIGTERM)
    before = files.wait_report(lambda r: r.slices[0].notice is not None).slices[0]
    first.kill()
    hosts[0].wait_for("no contact with the resource manager")
    manager(cluster, files).wait_for("slice 0 is alive")
    after = files.wait_report(lambda r: r.slices[0].notice is not None).slices[0]
    assert before.notice is not None
    assert after.notice is not None
    assert after.notice.reason == "host 0 got SIGTERM"
    assert abs(after.notice.deadline - before.notice.deadline) < 1.0
    membership_client.release(RM, 0, 1, "its data is saved", PATIENCE_S)
    assert [host.exit_code(AT_ONCE_S) for host in hosts] == [ExitCode.ENDED] * 2


def test_a_worker_without_contact_ends_at_once(cluster: Cluster, files: Files) -> None:
    first = manager(cluster, files)
    observer = cluster.observer()
    hosts = two_hosts(cluster, observer)
    first.kill()
    hosts[0].wait_for("no contact with the resource manager")
    hosts[0].send(signal.SIGTERM)
    assert hosts[0].exit_code(AT_ONCE_S) == ExitCode.ENDED
    assert "nobody is there who could save the slice's data" in hosts[0].text()


def test_an_ordered_shutdown_ends_all_at_once_and_nobody_saves(
    cluster: Cluster, files: Files
) -> None:
    manager(cluster, files)
    observer = cluster.observer()
    hosts = two_hosts(cluster, observer)
    Orders(shutdown="down").write(files.orders)
    files.wait_report(lambda r: r.shutting_down)
    for host in hosts:
        if host.running:
            host.send(signal.SIGTERM)
    assert [host.exit_code(AT_ONCE_S) for host in hosts] == [ExitCode.ENDED] * 2
    report = files.wait_report(lambda r: r.shutting_down)
    assert report.slices[0].alive
    assert report.slices[0].notice is None
    assert observer.history[-1].slices[0].alive
    assert all(m.slices[0].notice is None for m in observer.history)


def test_an_ordered_release_holds_for_workers_that_come_later(
    cluster: Cluster, files: Files
) -> None:
    Orders(released=(SliceOrder(0, 1, "its workload has left"),)).write(files.orders)
    manager(cluster, files)
    late = worker(cluster, 0, 0)
    assert late.exit_code() == ExitCode.ENDED
    assert "released: its workload has left" in late.text()
    assert files.wait_report(lambda r: r.slices[0].incarnation == 1).slices[0].released
    observer = cluster.observer()
    for host in range(2):
        worker(cluster, 0, host, incarnation=2)
    observer.wait_alive(0, 2)


def test_an_abandoned_slice_is_so_until_a_greater_incarnation_comes(
    cluster: Cluster, files: Files
) -> None:
    log = manager(cluster, files)
    observer = cluster.observer()
    hosts = two_hosts(cluster, observer)
    membership_client.release(RM, 0, 1, "its data is saved", PATIENCE_S)
    assert [host.exit_code() for host in hosts] == [ExitCode.ENDED] * 2
    files.orders.write_text("{")
    log.wait_for("ignoring the orders until they are written anew")
    Orders(abandoned=(SliceOrder(0, 1, "cancelled by a user"),)).write(files.orders)
    member = observer.wait_until(lambda m: bool(m.slices[0].abandoned)).slices[0]
    assert member == SliceMember(0, 1, False, "its data is saved", abandoned="cancelled by a user")
    for host in range(2):
        worker(cluster, 0, host, incarnation=2)
    assert observer.wait_alive(0, 2) == SliceMember(0, 2, True)
    assert log.text().count("ignoring the orders") == 1


def test_the_report_of_an_earlier_resource_manager_is_gone_before_the_port_opens(
    cluster: Cluster, files: Files
) -> None:
    files.report.write_text("of an earlier one")
    manager(cluster, files)
    report = Report.read(files.report)
    assert report is not None
    assert report.slices[0].reason == "no worker has registered"
    # One that can't have the port leaves the other's report alone.
    stamp = files.report.stat().st_mtime_ns
    second = cluster.manager(wait=False, overrides=files.variables)
    assert second.exit_code() == 1
    assert files.report.stat().st_mtime_ns == stamp


def test_a_report_that_cannot_be_written_is_written_later(cluster: Cluster, tmp_path: Path) -> None:
    directory = tmp_path / "state"
    directory.mkdir()
    files = Files(directory)
    log = manager(cluster, files)
    files.report.unlink()
    directory.rmdir()
    observer = cluster.observer()
    two_hosts(cluster, observer)
    log.wait_for("cannot write the report")
    directory.mkdir()
    assert files.wait_report(lambda r: r.slices[0].alive)
    assert log.text().count("cannot write the report") == 1
