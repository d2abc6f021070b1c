# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The emulator from an image of its own: a service in containers, as it will be with Pathways'."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.enroot import images
from tests.enroot.layer import Layer, kill_all

from pathways_slurm import topology

ROOT = Path(__file__).resolve().parents[2]
WORKER_HOST = ROOT / "scripts" / "lib" / "worker_host.sh"
NETWORK = "127.88"
SERVICE = f"{NETWORK}.0.1"
WORKER = f"{NETWORK}.1.1"
PATIENCE_S = 60.0

CLIENT = """
import jax, pathwaysutils
pathwaysutils.initialize()
devices = jax.devices()
total = jax.jit(lambda x: (x * x).sum())(jax.device_put(jax.numpy.arange(8.0), devices[-1]))
print(len(devices), float(total))
"""


class Service:
    """RM, proxy and one worker, each in a container, as a supervisor starts them."""

    def __init__(self, layer: Layer, image: Path, directory: Path) -> None:
        self._layer = layer
        self._image = image
        self._directory = directory
        self._processes: list[subprocess.Popen[bytes]] = []
        self.scratch = directory / "scratch"

    def rm(self) -> subprocess.Popen[bytes]:
        flags = ["--server_port=29001", "--node_type=resource_manager", "--instance_count=1"]
        flags += ["--instance_type=tpuv6e:2x2", self._scratch_flag, "--enable_gcs_olm=false"]
        environment = {"PATHWAYS_BIND_ADDRESS": SERVICE, "TPU_SKIP_MDS_QUERY": "true"}
        return self._start("rm", [], ["/pathways/server", *flags], environment)

    def proxy(self) -> subprocess.Popen[bytes]:
        flags = ["--server_port=29000", self._rm_flag, self._scratch_flag]
        environment = {
            "PATHWAYS_BIND_ADDRESS": SERVICE,
            "IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS": "true",
        }
        command = ["/pathways/proxy_server", *flags, "--num_elastic_instances=1"]
        return self._start("proxy", [], command, environment)

    def worker(self, incarnation: int) -> subprocess.Popen[bytes]:
        environment = topology.slice_environment(
            topology.topology_for("v6e", "2x2"), num_slices=1, coordinator=SERVICE
        ) | {
            "PATHWAYS_SLICE_INDEX": "0",
            "PATHWAYS_HOST_INDEX": "0",
            "PATHWAYS_INCARNATION": str(incarnation),
            "PATHWAYS_NODE_NAMES": "node",
            "PATHWAYS_NODE_ADDRESSES": WORKER,
            # What it may take to save the slice's data, of which there is none any more.
            "PATHWAYS_NOTICE_S": "1",
        }
        flags = ["--server_port=29001", self._rm_flag, self._scratch_flag, "--enable_gcs_olm=false"]
        before = ["/bin/bash", str(WORKER_HOST)]
        return self._start("worker-0-0", before, ["/pathways/server", *flags], environment)

    def log(self, name: str) -> str:
        path = self._directory / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def wait_for(
        self, process: subprocess.Popen[bytes], name: str, pattern: str, times: int
    ) -> None:
        """Until a component has said it so often."""
        deadline = time.monotonic() + PATIENCE_S
        while len(re.findall(pattern, self.log(name))) < times:
            if time.monotonic() > deadline or process.poll() is not None:
                raise AssertionError(f"no {pattern!r} of {name}:\n{self.log(name)}")
            time.sleep(0.02)

    def close(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                kill_all(process)

    @property
    def _rm_flag(self) -> str:
        return f"--resource_manager_address={SERVICE}:29001"

    @property
    def _scratch_flag(self) -> str:
        return f"--gcs_scratch_location={self.scratch}"

    def _start(
        self, name: str, before: list[str], program: list[str], environment: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        layer = self._layer.command(
            "run_in_container.sh", self._image, name, "--mount", f"{self.scratch}:{self.scratch}"
        )
        with (self._directory / f"{name}.log").open("ab") as output:
            process = subprocess.Popen(
                [*before, *layer, "--", *program],
                env={**self._layer.environment, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._processes.append(process)
        return process


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory for containers that these tests share: unpacked, the image has half a gigabyte,
    which pytest would keep for a while."""
    directory = tmp_path_factory.mktemp("containers")
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def node(layer: Layer, base: Path) -> Layer:
    """The layer with that directory."""
    layer.base = base
    layer.environment["PATHWAYS_CONTAINER_DIR"] = str(base)
    return layer


@pytest.fixture
def service(node: Layer, emulator_image: Path, tmp_path: Path) -> Iterator[Service]:
    started = Service(node, emulator_image, tmp_path)
    try:
        yield started
    finally:
        started.close()


def compute() -> str:
    """What a JAX client outside of the containers prints."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", CLIENT],
        env={
            **os.environ,
            "JAX_PLATFORMS": "proxy",
            "JAX_BACKEND_TARGET": f"grpc://{SERVICE}:29000",
            "IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS": "true",
        },
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.timeout(240)
def test_a_service_in_containers_computes_is_killed_and_comes_back(service: Service) -> None:
    processes: list[subprocess.Popen[bytes]] = []
    for times in (1, 2):
        rm = service.rm()
        service.wait_for(rm, "rm", "resource manager listens", times)
        worker = service.worker(times)
        service.wait_for(worker, "worker-0-0", "joined", times)
        proxy = service.proxy()
        service.wait_for(proxy, "proxy", "proxy listens", times)
        assert compute() == "4 140.0\n"
        processes = [proxy, worker, rm]
        if times == 1:
            for process in processes:
                kill_all(process)
    for process in processes:
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    said = service.log("rm") + service.log("worker-0-0") + service.log("proxy")
    # For three components, twice.
    assert said.count("Unpacked") == 1


def test_the_image_is_made_once(emulator_image: Path) -> None:
    before = emulator_image.stat().st_ino
    assert images.make_emulator(emulator_image.parent) == emulator_image
    assert emulator_image.stat().st_ino == before


def test_wrong_flags_are_told_by_the_program_itself(node: Layer, emulator_image: Path) -> None:
    done = node.run(emulator_image, "/pathways/server", "--no_such_flag=1", name="rm")
    assert done.returncode == 2
    assert "no_such_flag" in done.stderr
