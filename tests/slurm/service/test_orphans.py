# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Workers that outlive what Slurm knows of them: the next run takes their place."""

import os
import re
import signal
from pathlib import Path

import pytest
from tests.e2e.service import wait_until
from tests.slurm.service.service import SlurmService


def _step_daemons(job: str) -> list[int]:
    """The slurmstepds of a job's steps, on all nodes of the cluster."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (OSError, UnicodeDecodeError):
            continue
        if re.match(rf"slurmstepd: \[{job}\.", words):
            found.append(int(entry.name))
    return found


@pytest.mark.timeout(300)
def test_workers_whose_slurmstepd_was_killed_make_way_for_the_next_run(
    service: SlurmService,
) -> None:
    service.sbatch()
    service.wait_for("READY", timeout_s=60)
    before = service.wait_for_slice(0, "READY")
    job = next(row["job"] for row in service.tasks() if row["id"].endswith("_0"))
    orphans = [service.worker_on(host["address"]) for host in before["hosts"]]
    daemons = _step_daemons(job)
    assert len(daemons) == 3, "of the batch script, and of each host"
    for pid in daemons:
        os.kill(pid, signal.SIGKILL)
    after = service.wait_for_slice(0, "READY", above=before["incarnation"], timeout_s=120)
    assert after["incarnation"] == before["incarnation"] + 1
    for host in after["hosts"]:
        assert service.worker_on(host["address"]) not in orphans
    wait_until(
        lambda: not set(orphans) & service.processes().keys(), 30.0, "the orphans have ended"
    )
    told = [e for e in service.events() if e["reason"] == "NodePoweredDown"]
    assert not told
