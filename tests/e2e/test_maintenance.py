# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Slices give their nodes back when they are asked to, and come back when that is over."""

import os
import signal
import time
from pathlib import Path

from tests.e2e.service import ServiceUnderTest, wait_until


def _workers(service: ServiceUnderTest, index: int) -> list[int]:
    words = f"{service.network}.{1 + index}."
    return [pid for pid in service.processes() if words in _address_of(pid)]


def _address_of(pid: int) -> str:
    try:
        variables = Path(f"/proc/{pid}/environ").read_text(errors="replace").split("\0")
    except OSError:
        return ""
    found = [v for v in variables if v.startswith("PATHWAYS_BIND_ADDRESS=")]
    return found[0] if found else ""


def test_a_slice_gives_its_nodes_back_and_stays_down_until_it_is_wanted(
    service: ServiceUnderTest,
) -> None:
    root = service.up()
    before = service.wait_for_slice(1, "READY")
    others = [service.wait_for_slice(index, "READY")["hosts"] for index in (0, 2)]
    done = service.run("maintenance", "1", "--wait", "40s", "--reason", "new kernel")
    assert done.returncode == 0, done.stdout + done.stderr + service.logs()
    assert f"slice 1 is down; its nodes are free: {', '.join(before['nodes'])}" in done.stdout
    assert service.status()["slices"][1]["state"] == "MAINTENANCE"
    assert "new kernel" in service.status()["slices"][1]["reason"]
    assert not _workers(service, 1)
    # A new supervisor keeps it down as well.
    old = service.status()["supervisor_pid"]
    os.kill(old, signal.SIGKILL)
    wait_until(lambda: service.status()["supervisor_pid"] not in (None, old), 30.0, "a new one")
    service.wait_for("READY", process=root)
    assert service.status()["slices"][1]["state"] == "MAINTENANCE"
    assert not _workers(service, 1)
    assert [service.status()["slices"][index]["hosts"] for index in (0, 2)] == others

    assert service.run("maintenance", "--done", "1").returncode == 0
    after = service.wait_for_slice(1, "READY", above=before["incarnation"])
    assert after["incarnation"] == before["incarnation"] + 1
    assert [event["reason"] for event in service.events()].count("SliceLost") == 0


def test_a_slice_that_hangs_is_ended_by_force_at_the_deadline(service: ServiceUnderTest) -> None:
    service.up()
    hung = service.wait_for_slice(1, "READY")
    (worker,) = _workers(service, 1)
    os.kill(worker, signal.SIGSTOP)
    asked = time.monotonic()
    done = service.run("maintenance", "1", "--wait", "4s")
    assert done.returncode == 0, done.stdout + done.stderr + service.logs()
    assert 3.5 <= time.monotonic() - asked < 40
    (lost,) = [event for event in service.events() if event["reason"] == "SliceLost"]
    assert "host 0 ended by signal 9 (SIGKILL)" in lost["message"]
    assert not _workers(service, 1)
    assert service.run("maintenance", "--done", "--all").returncode == 0
    service.wait_for_slice(1, "READY", above=hung["incarnation"])
