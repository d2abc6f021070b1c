# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""scripts/lib/worker_host.sh: agrees with topology.py, and becomes the program it is given."""

import os
import signal
import subprocess

import pytest

from pathways_slurm import launch
from pathways_slurm.topology import host_environment, slice_environment, topology_for

COORDINATOR = "10.0.0.1"
NUM_SLICES = 3

TASK = {
    "PATHWAYS_SLICE_INDEX": "1",
    "PATHWAYS_HOST_INDEX": "0",
    "PATHWAYS_NODE_NAMES": "tpu-a,tpu-b",
    "PATHWAYS_NODE_ADDRESSES": "10.0.1.1,10.0.1.2",
}

# Of a job that ran here before: all of it must be overwritten.
STALE = {
    "MEGASCALE_SLICE_ID": "9",
    "PATHWAYS_BIND_ADDRESS": "0.0.0.0",
    "TPU_WORKER_HOSTNAMES": "gone",
    "TPU_WORKER_ID": "7",
}


def run(env: dict[str, str], *program: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(launch.BASH), str(launch.WORKER_HOST_SCRIPT), *program],
        env={"PATH": os.environ["PATH"], **env},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@pytest.mark.parametrize(
    ("tpu_type", "shape", "slice_index"),
    [("v6e", "2x4", 0), ("v6e", "2x4", 2), ("v6e", "4x4", 1), ("v5p", "2x2x4", 2)],
)
def test_every_host_gets_the_environment_that_topology_says(
    tpu_type: str, shape: str, slice_index: int
) -> None:
    topology = topology_for(tpu_type, shape)
    addresses = [f"10.0.{slice_index}.{host + 1}" for host in range(topology.hosts)]
    shared = slice_environment(topology, num_slices=NUM_SLICES, coordinator=COORDINATOR)
    for host_index in range(topology.hosts):
        task = {
            "PATHWAYS_SLICE_INDEX": str(slice_index),
            "PATHWAYS_HOST_INDEX": str(host_index),
            "PATHWAYS_NODE_NAMES": ",".join(f"tpu-{host}" for host in range(topology.hosts)),
            "PATHWAYS_NODE_ADDRESSES": ",".join(addresses),
        }
        result = run(shared | STALE | task, "env", "-0")
        assert result.returncode == 0, result.stderr
        assert result.stderr == ""
        pairs = (entry.partition("=") for entry in result.stdout.split("\0") if entry)
        environment = {name: value for name, _, value in pairs}
        for of_bash in ("PATH", "PWD", "OLDPWD", "SHLVL", "_"):
            environment.pop(of_bash, None)
        expected = host_environment(
            topology,
            host_index=host_index,
            node_addresses=addresses,
            slice_index=slice_index,
            num_slices=NUM_SLICES,
            coordinator=COORDINATOR,
        )
        assert environment == expected | task


def test_arguments_reach_the_program_as_they_are() -> None:
    arguments = ["a b", "", "$HOME", "*", "--flag=x y", "line\nbreak"]
    result = run(TASK, "printf", "%s\\0", *arguments)
    assert result.stdout.split("\0")[:-1] == arguments


def test_the_program_takes_the_place_of_the_script() -> None:
    process = subprocess.Popen(
        [str(launch.BASH), str(launch.WORKER_HOST_SCRIPT), "bash", "-c", "echo $$; read -r _"],
        env={"PATH": os.environ["PATH"], **TASK},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert int(process.stdout.readline()) == process.pid
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == -signal.SIGTERM


def test_the_exit_code_is_the_programs() -> None:
    assert run(TASK, "bash", "-c", "exit 37").returncode == 37


def test_a_program_that_is_not_there() -> None:
    result = run(TASK, "/nowhere/server")
    assert result.returncode == 127
    assert "/nowhere/server" in result.stderr


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"PATHWAYS_SLICE_INDEX": ""}, "PATHWAYS_SLICE_INDEX='' is not a whole number from 0"),
        ({"PATHWAYS_SLICE_INDEX": "-1"}, "PATHWAYS_SLICE_INDEX='-1' is not a whole number"),
        ({"PATHWAYS_HOST_INDEX": "01"}, "PATHWAYS_HOST_INDEX='01' is not a whole number"),
        # Bash would run this in an arithmetic expression.
        (
            {"PATHWAYS_HOST_INDEX": "a[$(echo ran >&2)]"},
            "PATHWAYS_HOST_INDEX='a[$(echo ran >&2)]' is not a whole number",
        ),
        ({"PATHWAYS_HOST_INDEX": "2"}, "PATHWAYS_HOST_INDEX=2 but the slice has 2 nodes"),
        ({"PATHWAYS_NODE_NAMES": "a,,b"}, "PATHWAYS_NODE_NAMES='a,,b' is not a comma list"),
        ({"PATHWAYS_NODE_NAMES": "a"}, "has 1 nodes and PATHWAYS_NODE_ADDRESSES 2"),
        ({"PATHWAYS_NODE_ADDRESSES": "a b"}, "PATHWAYS_NODE_ADDRESSES='a b' is not a comma list"),
    ],
)
def test_what_the_scheduler_got_wrong_is_said_and_nothing_runs(
    change: dict[str, str], message: str
) -> None:
    result = run(TASK | change, "echo", "ran")
    assert result.returncode == 2
    assert result.stdout == ""
    [line] = result.stderr.splitlines()
    assert line.startswith("worker_host.sh: ")
    assert message in line


@pytest.mark.parametrize("variable", sorted(TASK))
def test_a_variable_that_is_missing_is_named(variable: str) -> None:
    result = run({name: value for name, value in TASK.items() if name != variable}, "echo", "ran")
    assert result.returncode == 2
    assert result.stdout == ""
    assert f"{variable}=''" in result.stderr


def test_a_program_must_be_given() -> None:
    result = run(TASK)
    assert result.returncode == 2
    assert "no program to run" in result.stderr
