# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""`pathways-emulator serve` with real processes and a real JAX client."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from tests.emulator.control.processes import NETWORK, PATIENCE_S, PROXY, RM, Cluster, Process

from pathways_emulator import membership_client
from pathways_emulator.env_file import read as read_env_file

# Prints the slices of the devices, then on every line of input the slices that answer.
CLIENT = """
import sys
import pathwaysutils
pathwaysutils.initialize()
import jax
from pathwaysutils.elastic import elastic
print(sorted({d.slice_index for d in jax.devices()}), len(jax.devices()), flush=True)
slices = {}
for device in jax.devices():
    slices.setdefault(device.slice_index, []).append(device)
for _ in sys.stdin:
    print(sorted(elastic.get_active_slice_indices(slices)), flush=True)
"""

# Keeps an array on slice 1, and on every line of input adds 1 to all of it and prints the sum.
COUNTER = """
import sys
import pathwaysutils
pathwaysutils.initialize()
import jax
import jax.numpy as jnp
device = next(d for d in jax.devices() if d.slice_index == 1)
add = jax.jit(lambda array: array + 1)
array = add(jax.device_put(jnp.zeros(100), device))
print(int(array.sum()), flush=True)
for _ in sys.stdin:
    array = add(array)
    print(int(array.sum()), flush=True)
"""


def serve(cluster: Cluster, *options: str, slices: str = "2", shape: str = "2x2") -> Process:
    network = f"{NETWORK}.0.0/16"
    arguments = ["--slices", slices, "--slice-shape", shape, "--network", network, *options]
    return cluster.run("serve", ["pathways_emulator.cli", "serve", *arguments], {})


def parts_of(served: Process) -> list[psutil.Process]:
    """All processes below it, at this moment."""
    return psutil.Process(served.pid).children(recursive=True)


def assert_gone(parts: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(parts, timeout=PATIENCE_S)
    assert not alive


@contextmanager
def jax_client(
    env_file: Path, errors: Path, program: str = CLIENT
) -> Iterator[subprocess.Popen[str]]:
    """A client, started by a shell that sources the file."""
    script = f'. "{env_file}" && exec "$@"'
    with (
        errors.open("w") as stderr,
        subprocess.Popen(
            ["bash", "-c", script, "bash", sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        ) as client,
    ):
        try:
            yield client
        finally:
            client.kill()


def answer(client: subprocess.Popen[str], question: str = "") -> str:
    assert client.stdin is not None
    assert client.stdout is not None
    if question:
        client.stdin.write(question)
        client.stdin.flush()
    return client.stdout.readline().strip()


def test_a_jax_program_sees_the_slices_and_the_loss_of_one(
    cluster: Cluster, tmp_path: Path
) -> None:
    env_file = tmp_path / "runtime.env"
    served = serve(cluster, "--env-file", str(env_file), slices="2", shape="2x4")
    served.wait_for("ready; Ctrl-C ends it")
    assert env_file.stat().st_mode & 0o777 == 0o600
    exports = env_file.read_text().splitlines()[1:]
    assert all(line in served.text() for line in exports)
    parts = parts_of(served)
    assert len(parts) == 2 + 4 + 1  # Resource manager, proxy, workers, janitor.

    with jax_client(env_file, tmp_path / "client.log") as client:
        assert answer(client) == "[0, 1] 16", (tmp_path / "client.log").read_text()
        assert answer(client, "?\n") == "[0, 1]"
        status = membership_client.status(RM, PATIENCE_S)
        (victim,) = [h.pid for h in status.hosts if (h.slice_index, h.host_index) == (1, 0)]
        os.kill(victim, signal.SIGKILL)
        served.wait_for(rf"the worker of slice 1 host 0 \(pid {victim}\) was ended by SIGKILL")
        assert answer(client, "?\n") == "[0]"

    assert served.running
    served.send(signal.SIGINT)
    assert served.exit_code() == 0
    assert "ended; nothing is left" in served.text()
    assert_gone(parts)
    assert list(tmp_path.glob("*.env")) == []


def test_a_program_goes_on_when_its_slice_was_suspended_and_revived(
    cluster: Cluster, tmp_path: Path
) -> None:
    def command(name: str) -> None:
        arguments = ["pathways_emulator.cli", name, "1", "--env-file", str(env_file)]
        done = cluster.run(name, arguments, {})
        assert done.exit_code() == 0, done.text()

    env_file = tmp_path / "runtime.env"
    served = serve(cluster, "--env-file", str(env_file), "--notice-seconds", "100")
    served.wait_for("ready; Ctrl-C ends it")
    parts = parts_of(served)
    with jax_client(env_file, tmp_path / "client.log", COUNTER) as client:
        assert answer(client) == "100", (tmp_path / "client.log").read_text()
        command("notice")
        served.wait_for(r"slice 1 got notice \(host 0 got SIGTERM\): its data is being saved")
        served.wait_for("slice 1 ended: .*saved")
        assert "slice 1 lost" not in served.text()
        command("revive")
        assert answer(client, "?\n") == "200"
    served.send(signal.SIGINT)
    assert served.exit_code() == 0
    assert_gone(parts)


def test_kill_9_of_it_leaves_nothing(cluster: Cluster, tmp_path: Path) -> None:
    env_file = tmp_path / "runtime.env"
    served = serve(cluster, "--env-file", str(env_file))
    served.wait_for("ready; Ctrl-C ends it")
    parts = parts_of(served)
    directory = Path(read_env_file(env_file)["PATHWAYS_CONTROL_SOCKET"]).parent
    assert directory.stat().st_mode & 0o777 == 0o700
    served.kill()
    assert_gone(parts)
    assert not env_file.exists()
    assert not directory.exists()


@pytest.mark.parametrize(
    ("argument", "name", "moment"),
    [
        ("--node_type=resource_manager", "resource manager", "resource manager ready"),
        ("pathways_emulator.proxy_server", "proxy", "ready; Ctrl-C ends it"),
    ],
)
def test_the_end_of_a_part_it_needs_ends_it_with_the_reason(
    cluster: Cluster, tmp_path: Path, argument: str, name: str, moment: str
) -> None:
    env_file = tmp_path / "runtime.env"
    served = serve(cluster, "--env-file", str(env_file), slices="1")
    served.wait_for(moment)
    parts = parts_of(served)
    (victim,) = [part for part in parts if argument in part.cmdline()]
    victim.kill()
    assert served.exit_code() == 1
    assert f"ending: the {name} was ended by SIGKILL" in served.text()
    assert_gone(parts)
    assert not env_file.exists()


@pytest.mark.parametrize("moment_s", [0.0, 0.2, 1.0])
def test_a_signal_while_it_starts_leaves_nothing(
    cluster: Cluster, tmp_path: Path, moment_s: float
) -> None:
    env_file = tmp_path / "runtime.env"
    served = serve(cluster, "--env-file", str(env_file))
    served.wait_for("2 slices of tpuv6e:2x2")
    time.sleep(moment_s)  # The moment is the subject.
    parts = parts_of(served)
    served.send(signal.SIGTERM)
    assert served.exit_code() == 0
    assert_gone(parts)
    assert not env_file.exists()


def test_faults_come_at_once_and_nothing_is_started(cluster: Cluster) -> None:
    served = serve(cluster, "--port", "0", slices="none", shape="3x3")
    assert served.exit_code() == 2
    assert "cannot start, 3 faults" in served.text()


def test_all_taken_ports_are_told_at_once(cluster: Cluster) -> None:
    with (
        socket.create_server((PROXY.host, PROXY.port)),
        socket.create_server((f"{NETWORK}.2.1", 29001)),
    ):
        served = serve(cluster)
        assert served.exit_code() == 2
    assert "cannot start, 2 faults" in served.text()
    assert f"--port: cannot listen on {PROXY}: another process listens there" in served.text()
    assert "(for the worker of slice 1 host 0)" in served.text()
    assert "choose another --network" in served.text()
