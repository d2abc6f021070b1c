# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Wrong settings: all faults in one go, exit code 2, and nothing started."""

import socket
from pathlib import Path

import pytest
from tests.e2e.service import ServiceUnderTest


def _faults(service: ServiceUnderTest, command: str) -> list[str]:
    answer = service.run(command)
    assert answer.returncode == 2, answer.stderr
    assert not service.processes()
    assert not service.cluster_env.exists()
    return [line for line in answer.stderr.splitlines() if line.startswith("  - ")]


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("TPU_TYPE", "v9", "v4, v5e, v5p, v6e, tpu7x"),
        ("SLICE_SHAPE", "", "SLICE_SHAPE is not set"),
        ("SLICE_SHAPE", "3x5", "2x2"),
        ("SLICE_SHAPE", "2x2x2", "2x4"),
        ("MIN_SLICES", "two", "is not a whole number"),
        ("MIN_SLICES", "0", "from 1"),
        ("MIN_SLICES", "4", "from 1 to 3"),
        ("MAX_SLICES", "", "MAX_SLICES is not set"),
        ("GCS_BUCKET", "", "GCS_BUCKET is not set"),
        ("GCS_BUCKET", "Not/A/Bucket", "a bucket name, gs://BUCKET, or an absolute directory"),
        ("PATHWAYS_RUNTIME", "tpu", "emulator"),
        ("PATHWAYS_SCHEDULER", "pbs", "local"),
        ("PATHWAYS_PROXY_PORT", "65536", "65535"),
        ("PATHWAYS_LOCAL_NETWORK", "10.0.0.0/16", "127.0.0.0/8"),
        ("PATHWAYS_HOME", "relative", "an absolute directory"),
    ],
)
def test_one_wrong_setting_is_named_with_what_is_valid(
    service: ServiceUnderTest, variable: str, value: str, words: str
) -> None:
    service.settings[variable] = value
    (fault,) = _faults(service, "up")
    assert variable in fault
    assert words in fault


@pytest.mark.parametrize("command", ["up", "supervise"])
def test_every_fault_is_told_in_one_go(
    service: ServiceUnderTest, tmp_path: Path, command: str
) -> None:
    (tmp_path / "file").touch()
    service.settings |= {
        "TPU_TYPE": "v9",
        "MIN_SLICES": "5",
        "MAX_SLICES": "4",
        "GCS_BUCKET": "",
        "PATHWAYS_HOME": str(tmp_path / "file" / "below"),
        "PATHWAYS_LEASE_S": "soon",
    }
    with socket.create_server((f"{service.network}.0.1", 29000)):
        faults = _faults(service, command)
    named = [fault.removeprefix("  - ").split("=")[0].split()[0] for fault in faults]
    assert named == [
        "TPU_TYPE",
        "MIN_SLICES",
        "GCS_BUCKET",
        "PATHWAYS_HOME",
        "PATHWAYS_PROXY_PORT",
        "PATHWAYS_LEASE_S",
    ]


@pytest.mark.parametrize(
    ("address", "port", "variable"),
    [
        ("0.1", 29000, "PATHWAYS_PROXY_PORT"),
        ("0.1", 29001, "PATHWAYS_RM_PORT"),
        ("2.1", 29001, "PATHWAYS_WORKER_PORT"),
    ],
)
@pytest.mark.parametrize("command", ["up", "supervise"])
def test_a_port_that_is_taken_is_named(
    service: ServiceUnderTest, command: str, address: str, port: int, variable: str
) -> None:
    with socket.create_server((f"{service.network}.{address}", port)):
        (fault,) = _faults(service, command)
    assert variable in fault
    assert "in use" in fault


def test_a_misspelled_setting_is_warned_of(service: ServiceUnderTest) -> None:
    service.settings |= {"MIN_SLICE": "2", "MIN_SLICES": ""}
    answer = service.run("up")
    assert answer.returncode == 2
    assert "MIN_SLICE is no setting and has no effect; did you mean MIN_SLICES?" in answer.stderr


def test_an_unknown_command_lists_the_known_ones(service: ServiceUnderTest) -> None:
    answer = service.run("start")
    assert answer.returncode == 2
    known = "up, down, status, events, logs, run, maxtext, maintenance, topology, supervise"
    assert f"Commands: {known}." in answer.stderr
