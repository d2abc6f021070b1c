# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The soak of benchmarks/, in short: nothing grows with what a runtime lives through."""

import re
import subprocess
import sys

import pytest
from tests.e2e.service import CHECKOUT, reserve_network

EVENTS = 12


@pytest.mark.timeout(600)
def test_nothing_of_a_runtime_grows_with_what_happens_to_its_slices() -> None:
    network, reservation = reserve_network()
    with reservation:
        done = subprocess.run(
            [
                *(sys.executable, str(CHECKOUT / "benchmarks" / "soak.py")),
                *("--events", str(EVENTS), "--session", "4"),
                *("--network", f"{network}.0.0/16"),
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=590,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    happened = [line for line in lines if re.match(r"(kill|stop|notice) \d ", line)]
    assert len(happened) == EVENTS
    assert {line.split()[0] for line in happened} == {"kill", "stop", "notice"}
    assert len([line for line in lines if line.startswith("end of session")]) == 3
