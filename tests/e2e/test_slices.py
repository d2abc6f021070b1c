# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Slices come, go and come back; the address is published once enough of them answer."""

import contextlib
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.service import ServiceUnderTest, wait_until


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceUnderTest]:
    """A service with two slices of two hosts each, one of which is enough; it is up."""
    under_test = ServiceUnderTest(
        tmp_path_factory.mktemp("shared") / "home",
        SLICE_SHAPE="2x4",
        MIN_SLICES="1",
        MAX_SLICES="2",
    )
    try:
        under_test.up()
        yield under_test
    finally:
        under_test.close()


@pytest.fixture
def two_hosts(shared: ServiceUnderTest) -> ServiceUnderTest:
    """The shared service, with both slices."""
    for index in range(2):
        shared.wait_for_slice(index, "READY")
    return shared


def _answer(service: ServiceUnderTest, slice_index: int) -> bool:
    address = f"{service.network}.{1 + slice_index}.1"
    try:
        with contextlib.closing(socket.create_connection((address, 29001), 1.0)):
            return True
    except OSError:
        return False


def test_the_address_appears_only_when_min_slices_answer(service: ServiceUnderTest) -> None:
    service.settings["MIN_SLICES"] = "3"
    service.start("up")
    deadline = time.monotonic() + 40
    while not service.cluster_env.exists():
        assert time.monotonic() < deadline, service.logs()
    # Looked at in the very moment of its appearance.
    assert all(_answer(service, index) for index in range(3))
    assert service.status()["service"] in ("STARTING", "READY")
    assert service.cluster_env.stat().st_mode & 0o777 == 0o600


def test_too_few_slices_are_no_service(service: ServiceUnderTest) -> None:
    """One slice can't start, so MIN_SLICES is out of reach: that is said, and nothing published."""
    service.settings |= {"MIN_SLICES": "3", "PATHWAYS_SLICE_RESTART_BUDGET": "1"}
    root = service.start("up")
    # Taken after the check at the start, as by a stranger who comes later.
    wait_until(lambda: (service.home / "state" / "run.json").exists(), 20.0, "begun", 0.001)
    with contextlib.ExitStack() as stack:
        _take_port(stack, f"{service.network}.2.1")
        published = False
        while root.poll() is None:
            published = published or service.cluster_env.exists()
    assert root.returncode == 1
    assert not published
    status = service.status()
    assert status["service"] == "FAILED"
    assert "fewer than MIN_SLICES=3" in status["reason"]
    assert "restart budget has run out (1 of 1" in status["slices"][1]["reason"]
    service.expect_nothing_left(within_s=1.0)


def _take_port(stack: contextlib.ExitStack, address: str) -> None:
    """Binds the worker's port, also if its worker was faster: then as soon as that is killed."""
    deadline = time.monotonic() + 30
    while True:
        try:
            stack.enter_context(socket.create_server((address, 29001)))
        except OSError:
            assert time.monotonic() < deadline
            _kill_listener(address)
        else:
            return


def _kill_listener(address: str) -> None:
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            environ = (entry / "environ").read_bytes().split(b"\0")
            if f"PATHWAYS_BIND_ADDRESS={address}".encode() in environ:
                os.kill(int(entry.name), signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_one_hosts_end_ends_its_slice_and_no_other(
    two_hosts: ServiceUnderTest, number: signal.Signals
) -> None:
    """Whatever its exit code: SIGINT makes a worker exit with 0. SIGTERM is a notice."""
    status = two_hosts.status()
    spared, before = status["slices"]
    proxy = status["proxy"]
    told = len(two_hosts.events())
    victim = before["hosts"][1]
    assert (victim["node"], victim["address"]) == (
        "slice-1-host-1",
        f"{two_hosts.network}.2.2",
    )
    os.kill(victim["pid"], number)
    after = two_hosts.wait_for_slice(1, "READY", above=before["incarnation"])
    assert after["incarnation"] == before["incarnation"] + 1
    pids = {host["pid"] for host in before["hosts"]} & {host["pid"] for host in after["hosts"]}
    assert not pids, "both hosts were started again"
    status = two_hosts.status()
    assert status["slices"][0]["hosts"] == spared["hosts"]
    assert status["slices"][0]["incarnation"] == spared["incarnation"]
    assert status["proxy"]["pid"] == proxy["pid"]
    about = [e for e in two_hosts.events()[told:] if e["subject"] == "slice 1"]
    # A second end soon after the first backs off before it is tried again: that is told as well.
    reasons = [e["reason"] for e in about if e["reason"] != "SlicePending"]
    assert reasons[reasons.index("SliceLost") :][:2] == ["SliceLost", "SliceRequeued"]
    lost = next(e for e in about if e["reason"] == "SliceLost")
    expected = "signal 9 (SIGKILL)" if number == signal.SIGKILL else "host 1"
    assert expected in lost["message"]


def test_a_host_sees_its_place_in_the_service(two_hosts: ServiceUnderTest) -> None:
    found = two_hosts.status()["slices"][1]
    environ = dict(
        item.split("=", 1)
        for item in Path(f"/proc/{found['hosts'][1]['pid']}/environ").read_text().split("\0")
        if item
    )
    network = two_hosts.network
    assert environ["TPU_WORKER_ID"] == "1"
    assert environ["TPU_WORKER_HOSTNAMES"] == f"{network}.2.1,{network}.2.2"
    assert environ["TPU_HOST_BOUNDS"] == "1,2,1"
    assert environ["MEGASCALE_SLICE_ID"] == "1"
    assert environ["MEGASCALE_NUM_SLICES"] == "2"
    assert environ["MEGASCALE_COORDINATOR_ADDRESS"] == f"{network}.0.1"


def test_logs_of_every_attempt_are_kept(two_hosts: ServiceUnderTest) -> None:
    found = two_hosts.status()["slices"][0]
    first = found["incarnation"]
    os.kill(found["hosts"][0]["pid"], signal.SIGKILL)
    two_hosts.wait_for_slice(0, "READY", above=first)
    log = (two_hosts.home / "logs" / "slice-0" / "host-0.log").read_text()
    assert f"incarnation {first}" in log
    assert f"incarnation {first + 1}" in log
