# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The example program, as a process of its own beside the tests' client."""

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from elastic_service import Service

CHECKOUT = Path(__file__).resolve().parents[2]
PROGRAM = CHECKOUT / "docs" / "examples" / "train_elastic.py"
STEP = re.compile(r"step +(\d+)  loss (\d+\.\d+)  slices ([\d,]+)")


@contextmanager
def running(service: Service, log: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, **service.variables, "PATHWAYS_MIN_SLICES": "1"}
    with (
        log.open("w") as errors,
        subprocess.Popen(
            [sys.executable, str(PROGRAM), *options],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        hung = threading.Timer(110, process.kill)
        hung.start()
        try:
            yield process
        finally:
            hung.cancel()
            process.kill()


@pytest.mark.timeout(150)
def test_the_example_survives_a_loss_and_takes_the_slice_back(
    service: Service, tmp_path: Path
) -> None:
    log = tmp_path / "stderr"
    slices: list[str] = []
    losses: dict[int, float] = {}
    said: list[str] = []
    with running(service, log, "--steps", "60", "--snapshot-period", "5") as program:
        assert program.stdout is not None
        for line in program.stdout:
            if (found := STEP.match(line)) is None:
                said.append(line)
                continue
            step, loss, where = int(found[1]), float(found[2]), found[3]
            # A step that is taken again has the loss that it had.
            assert losses.setdefault(step, loss) == pytest.approx(loss, abs=2e-3)
            slices.append(where)
            if step == 12 and where == "0,1,2":
                service.kill(1)
            if step == 20:
                service.revive(1)
        assert program.wait(30) == 0, log.read_text()
    assert sorted(losses) == list(range(60)), log.read_text()
    assert list(dict.fromkeys(slices)) == ["0,1,2", "0,2"]
    assert slices[-1] == "0,1,2"
    kinds = [line.partition(":")[0] for line in said]
    assert kinds == ["SlicesLost", "ReshardedDown", "SlicesBack", "ReshardedUp"]
    assert losses[59] < losses[0] - 1


def test_the_example_says_what_is_wrong(service: Service, tmp_path: Path) -> None:
    with running(service, tmp_path / "stderr", "--snapshot-period", "0") as program:
        output, _ = program.communicate()
        assert program.returncode == 1
    assert output == "failed: snapshot_period must be an integer >= 1, got 0\n"
