# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Processes that are stopped: they live and accept connections, and do nothing else."""

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.service import ServiceUnderTest, output_of, wait_until


@pytest.fixture
def impatient(tmp_path: Path) -> Iterator[ServiceUnderTest]:
    """Two slices of two hosts that are lost after 2 s of silence."""
    under_test = ServiceUnderTest(
        tmp_path / "home",
        SLICE_SHAPE="2x4",
        MIN_SLICES="1",
        MAX_SLICES="2",
        PATHWAYS_HEARTBEAT_TIMEOUT_S="2",
        # Longer than a resource manager that hangs is waited for.
        PATHWAYS_LEASE_S="60",
    )
    yield under_test
    under_test.close()


def _messages(service: ServiceUnderTest, reason: str, subject: str) -> list[str]:
    return [
        event["message"]
        for event in service.events()
        if (event["reason"], event["subject"]) == (reason, subject)
    ]


def _is_gone(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return True


def test_a_slice_with_a_stopped_host_is_unreachable_then_lost_and_comes_back(
    impatient: ServiceUnderTest,
) -> None:
    impatient.up()
    spared = impatient.wait_for_slice(0, "READY")
    before = impatient.wait_for_slice(1, "READY")
    stopped = before["hosts"][1]["pid"]
    os.kill(stopped, signal.SIGSTOP)
    after = impatient.wait_for_slice(1, "READY", above=1)
    assert after["incarnation"] == 2
    (unreachable,) = _messages(impatient, "SliceUnreachable", "slice 1")
    assert "host 1 (slice-1-host-1) has stopped answering" in unreachable
    (lost,) = _messages(impatient, "SliceLost", "slice 1")
    assert "silent" in lost
    (requeued,) = _messages(impatient, "SliceRequeued", "slice 1")
    assert "requeued" in requeued
    # The old one, should anything wake it, does not come back.
    with contextlib.suppress(ProcessLookupError):
        os.kill(stopped, signal.SIGCONT)
    wait_until(lambda: _is_gone(stopped), 20.0, "the old worker has ended")
    status = impatient.status()
    assert status["slices"][1]["incarnation"] == 2
    assert status["slices"][0]["hosts"] == spared["hosts"]
    assert status["slices"][0]["incarnation"] == 1


def test_a_stopped_resource_manager_and_a_stopped_proxy_are_started_again(
    impatient: ServiceUnderTest,
) -> None:
    root = impatient.up()
    for index in range(2):
        impatient.wait_for_slice(index, "READY")
    before = impatient.status()
    for component in ("rm", "proxy"):
        os.kill(before[component]["pid"], signal.SIGSTOP)
    stopped_at = time.monotonic()

    def both_are_new() -> bool:
        status = impatient.status()
        return all(
            status[component]["state"] == "UP"
            and status[component]["pid"] != before[component]["pid"]
            for component in ("rm", "proxy")
        )

    wait_until(both_are_new, 60.0, f"both are started again: {impatient.logs()}")
    assert time.monotonic() - stopped_at > 14, "a machine may be slow for a while"
    for component, reason in (("rm", "ResourceManagerEnded"), ("proxy", "ProxyEnded")):
        (hung,) = _messages(impatient, "ComponentHung", component)
        assert "has been silent for" in hung
        (ended,) = _messages(impatient, reason, component)
        assert "was killed: it had been silent" in ended
        assert "started again (1 of 5" in ended
    wait_until(impatient.cluster_env.exists, 30.0, "the address is published again")
    status = impatient.wait_for("READY", process=root)
    assert [item["hosts"] for item in status["slices"]] == [
        item["hosts"] for item in before["slices"]
    ], "no slice was lost"


def test_a_service_with_stopped_processes_ends_when_it_is_told_to(
    impatient: ServiceUnderTest,
) -> None:
    """The resource manager's guard is stopped too, so that nobody passes on what it is told."""
    root = impatient.up()
    found = impatient.wait_for_slice(1, "READY")
    status = impatient.status()
    guard = json.loads((impatient.home / "state" / "rm.json").read_text())["guard_pid"]
    pids = [guard, status["rm"]["pid"], status["proxy"]["pid"], found["hosts"][0]["pid"]]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    supervisor = status["supervisor_pid"]
    # So that the supervisor has met the silence before it is told.
    wait_until(lambda: impatient.status()["proxy"]["state"] == "UNREACHABLE", 20.0, "it is seen")
    assert impatient.status()["supervisor_pid"] == supervisor
    told_at = time.time()
    answer = impatient.run("down", timeout_s=100.0)
    assert answer.returncode == 0, answer.stderr
    assert root.wait(10) == 0, output_of(root)
    (stopping,) = (e for e in impatient.events() if e["reason"] == "ServiceStopping")
    assert stopping["time"] - told_at < 5.0
    impatient.expect_nothing_left(within_s=1.0)
