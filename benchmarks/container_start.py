# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What containers add to a service's start. Run by: python benchmarks/startup.py --containers

Brings up a real Slurm of its own (not as root: scripts/lib/ordinary.sh runs it as another user) and
starts the service on it in turns, without and with containers, so that what else the machine does
meets both sides alike. Measured are the seconds from sbatch until cluster.env is there, and those
of each component from the start of its process, which becomes the component, until it answers.

The image is there beforehand. The first round unpacks it and fills caches; it does not count.
Enroot is the one on PATH, or else the tests' stand-in.
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pathways_slurm import containers, processes
from pathways_slurm.component import read_status
from pathways_slurm.probe import answering
from recovery import CHECKOUT, Bench, wait

# The devcluster is no part of the installed packages.
sys.path.insert(0, str(CHECKOUT))

from slurm.devcluster.cluster import DevCluster
from slurm.devcluster.options import Options

GOAL_S = 1.0
_SOON_S = 180.0
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Side:
    """A service in one of the two ways, and the seconds that its starts took, by what started."""

    bench: Bench
    seconds: dict[str, list[float]] = field(default_factory=dict)

    def measure(self) -> Mapping[str, float]:
        """Starts the service once, and ends it."""
        home = self.bench.directory / "home"
        began = time.monotonic()
        job = self.bench.sbatch_service()
        answered = self._answers(home / "cluster.env")
        found = {"service": time.monotonic() - began}
        pids = {name: read_status(home / "state" / f"{name}.json").pid for name in ("rm", "proxy")}
        pids |= {f"worker {host}": pid for host, (_, pid) in enumerate(self.bench.slice.hosts())}
        for name, pid in pids.items():
            identity = processes.identify(pid or 0)
            if identity is None:
                raise SystemExit(f"{name} has ended meanwhile; see {home}/logs")
            found[name] = answered[name] - identity.start_time / _TICKS
        self.bench.cancel(job)
        wait(lambda: not (home / "cluster.env").exists(), "the end of the service")
        return found

    def _answers(self, published: Path) -> Mapping[str, float]:
        """When each component answered first, in seconds since boot; returns with cluster.env."""
        bench = self.bench
        endpoints = {
            "rm": (bench.cpu_address, bench.settings.rm_port),
            "proxy": (bench.cpu_address, bench.settings.proxy_port),
        } | {
            f"worker {host}": (address, bench.settings.worker_port)
            for host, address in enumerate(bench.slice.addresses)
        }
        found: dict[str, float] = {}

        def all_answered() -> bool:
            missing = [name for name in endpoints if name not in found]
            # Asked one by one: each at its own time.
            for name in missing:
                if answering([endpoints[name]]):
                    found[name] = time.clock_gettime(time.CLOCK_BOOTTIME)
            return not missing and published.exists()

        wait(all_answered, "the start of the service", _SOON_S)
        return found


def compare(rounds: int) -> int:
    """Prints what each round took, and the medians and their differences."""
    if os.geteuid() == 0:
        print("not as root: scripts/lib/ordinary.sh .venv/bin/python benchmarks/startup.py ...")
        return 2
    with tempfile.TemporaryDirectory(prefix="start-") as path:
        directory = Path(path)
        in_containers = _container_settings(directory)
        options = Options(directory / "c", slices=1, cred_expire_s=5, kill_wait_s=5)
        with DevCluster(options) as cluster:
            sides = {}
            for name, settings in (("without", {}), ("with", in_containers)):
                (directory / name).mkdir()
                sides[name] = Side(Bench(cluster, directory / name, **settings))
            for turn in range(1 + rounds):
                for name, side in sides.items():
                    found = side.measure()
                    took = ", ".join(f"{of} {s:.2f} s" for of, s in found.items())
                    print(f"round {turn}, {name:7} containers: {took}", flush=True)
                    for of, s in found.items() if turn else ():
                        side.seconds.setdefault(of, []).append(s)
            layer = _layer_alone(sides["with"].bench, directory / "alone")
    _summarize(sides["without"], sides["with"], layer)
    return 0


def _container_settings(directory: Path) -> dict[str, str]:
    images, programs = directory / "images", directory / "bin"
    maker = [sys.executable, str(CHECKOUT / "enroot" / "emulator_image.py"), str(images)]
    subprocess.run(maker, stdout=subprocess.DEVNULL, check=True)
    programs.mkdir()
    found = shutil.which("enroot") or CHECKOUT / "tests" / "standins" / "enroot"
    (programs / "enroot").symlink_to(found)
    print(f"enroot: {found}", flush=True)
    return {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PATHWAYS_CONTAINER": "enroot",
        "PATHWAYS_CONTAINER_DIR": str(directory / "containers"),
        "PATHWAYS_IMAGE_DIR": str(images),
    }


def _layer_alone(bench: Bench, directory: Path) -> tuple[float, float]:
    """Seconds until a program that does nothing has ended: the image packed, and unpacked."""
    environment = {**bench.environ, "PATHWAYS_CONTAINER_DIR": str(directory)}
    image = containers.images_of(bench.settings).server
    command = [str(containers.RUN), image, "nothing", "--", "/bin/sh", "-c", ":"]
    seconds = []
    for _ in range(6):
        began = time.monotonic()
        subprocess.run(command, env=environment, stderr=subprocess.DEVNULL, check=True)
        seconds.append(time.monotonic() - began)
    return seconds[0], statistics.median(seconds[1:])


def _summarize(without: Side, within: Side, layer: tuple[float, float]) -> None:
    print(f"load {os.getloadavg()[0]:.1f}; medians of {len(without.seconds['service'])} rounds:")
    print(f"{'':10}{'without':>10}{'with':>10}{'added':>10}")
    for name, seconds in without.seconds.items():
        one, other = statistics.median(seconds), statistics.median(within.seconds[name])
        print(f"{name:10}{one:8.2f} s{other:8.2f} s{other - one:+8.2f} s")
    print(
        f"the layer by itself: {layer[1]:.2f} s, {layer[0]:.2f} s where it unpacks the image"
        f" (goal: at most {GOAL_S:g} s added to a component)"
    )
