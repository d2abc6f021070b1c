# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What the supervisor saves: from the kill of a worker until its whole slice answers again.

Usage: python benchmarks/recovery.py [--kills N=5] [--kills-alone N=1] [--cred-expire SECONDS=120]

Brings up a real Slurm of its own (not as root: scripts/lib/ordinary.sh runs it as another user),
whose requeued tasks wait as long as a real cluster's do. On it, one after the other:

- fresh: sbatch of one slice's array task until every host answers,
- alone: the same task, which requeues itself when it fails, with nobody to look after it,
- supervised: the service, started by sbatch,

and prints the medians and their ratios; in each line also how long it took until the hosts were
launched, which is the supervisor's and Slurm's part: the rest is the workers' own start.
With --cred-expire 120 a kill of "alone" takes two minutes. Nodes are not powered down meanwhile.
"""

import argparse
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pathways_slurm import launch
from pathways_slurm.config import Settings, read_settings
from pathways_slurm.scheduler.slurm_options import SlurmOptions, sbatch_argv

# The devcluster is no part of the installed packages.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from slurm.devcluster.cluster import DevCluster
from slurm.devcluster.options import Options

CHECKOUT = Path(__file__).resolve().parents[1]

SLICE_SCRIPT = CHECKOUT / "scripts" / "run_worker_slice.sh"
START_SCRIPT = CHECKOUT / "scripts" / "start_pathways.sh"

GOAL_RATIO = 10.0
GOAL_ABOVE_FRESH_S = 3.0

_GREETING = re.compile(rb"slice (\d+) host (\d+) incarnation (\d+) pid (\d+)")
_LAUNCH = re.compile(rb"=== slice 0 host \d+ incarnation (\d+) ")
_POLL_S = 0.02
_SOON_S = 120.0

type Host = tuple[int, int]
"""Incarnation and process id."""


@dataclass(frozen=True)
class Times:
    """Seconds until every host of a run was launched, and until every one answered."""

    launched: float
    answered: float

    def __str__(self) -> str:
        return f"{self.answered:7.2f} s, launched after {self.launched:.2f} s"


class Slice:
    """The hosts of slice 0: asked over TCP, as a service does, and read of in their logs."""

    def __init__(self, addresses: list[str], port: int, logs: Path) -> None:
        self.addresses = addresses
        self.port = port
        self.logs = [logs / f"host-{host}.log" for host in range(len(addresses))]

    def hosts(self) -> list[Host]:
        """Of each host that answers."""
        found = []
        for address in self.addresses:
            try:
                with socket.create_connection((address, self.port), timeout=1.0) as connection:
                    match = _GREETING.match(connection.recv(200))
            except OSError:
                continue
            if match and int(match[1]) == 0:
                found.append((int(match[3]), int(match[4])))
        return found

    def launched(self, above: int) -> bool:
        """Whether every host's log has the first line of a run greater than ``above``."""
        return all(
            any(
                int(run) > above
                for run in _LAUNCH.findall(log.read_bytes() if log.exists() else b"")
            )
            for log in self.logs
        )

    def wait(self, above: int, timeout_s: float) -> tuple[int, Times]:
        """Until every host answers with one incarnation greater than ``above``; returns that."""
        began = time.monotonic()
        launched: float | None = None
        while (spent := time.monotonic() - began) < timeout_s:
            if launched is None:
                launched = spent if self.launched(above) else None
                time.sleep(_POLL_S)
                continue
            hosts = self.hosts()
            incarnations = {incarnation for incarnation, _ in hosts}
            if len(hosts) == len(self.addresses) and len(incarnations) == 1:
                [incarnation] = incarnations
                if incarnation > above:
                    return incarnation, Times(launched, time.monotonic() - began)
            time.sleep(_POLL_S)
        raise SystemExit(f"the slice did not answer within {timeout_s:g} s: {self.hosts()}")

    def kill_one(self) -> None:
        """kill -9 of the worker of its last host."""
        os.kill(self.hosts()[-1][1], signal.SIGKILL)


def recoveries(target: Slice, kills: int, timeout_s: float) -> list[Times]:
    """From each kill until the slice answers again."""
    incarnation, _ = target.wait(0, _SOON_S)
    found = []
    for _ in range(kills):
        # Beyond the second in which a run may not start again, and the loop's last look.
        time.sleep(2.0)
        target.kill_one()
        incarnation, times = target.wait(incarnation, timeout_s)
        found.append(times)
        print(f"    {times}", flush=True)
    return found


class Bench:
    """One cluster and the settings of the service on it; ``settings`` go before the usual ones."""

    def __init__(self, cluster: DevCluster, directory: Path, **settings: str) -> None:
        self.cluster = cluster
        self.directory = directory
        self.environ = cluster.env | {
            "PATHWAYS_ENVIRONMENT": sys.prefix,
            "SLICE_SHAPE": "2x4",
            "MIN_SLICES": "1",
            "MAX_SLICES": "1",
            "GCS_BUCKET": str(directory / "scratch"),
            "PATHWAYS_HOME": str(directory / "home"),
            "PATHWAYS_SCHEDULER": "slurm",
            "PATHWAYS_SLURM_PARTITION": "tpu",
            # A node whose workers are killed again and again would be made anew.
            "PATHWAYS_POWER_DOWN": "never",
            **settings,
        }
        self.settings: Settings
        self.settings, faults = read_settings(self.environ)
        if faults:
            raise SystemExit(f"settings: {faults}")
        # Slice 0 is whatever nodes its task gets; of a cluster of one slice there are no others.
        addresses = [node.address for node in cluster.nodes if node.slice_index is not None]
        logs = directory / "home" / "logs" / "slice-0"
        self.slice = Slice(addresses, self.settings.worker_port, logs)
        self.cpu_address = next(n.address for n in cluster.nodes if n.slice_index is None)

    def submit_alone(self, first_incarnation: int, script: Path) -> str:
        """sbatch of the task that the service would submit, run by ``script``; its id."""
        name = f"alone{first_incarnation}"
        spec = launch.array_spec(self.settings, name, self.cpu_address, [0], first_incarnation)
        argv = sbatch_argv(spec, SlurmOptions(partition="tpu"), "", script)
        done = subprocess.run(
            argv, env=self.environ | dict(spec.env), capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    def sbatch_service(self) -> str:
        """sbatch of the service; the job's id."""
        argv = ["sbatch", "--parsable", f"--output={self.directory}/service.log", str(START_SCRIPT)]
        done = subprocess.run(argv, env=self.environ, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def cancel(self, job: str) -> None:
        """Ends a job, and waits until the queue and the slice's ports are empty."""
        self.cluster.run("scancel", job)
        wait(lambda: not self.queue() and not self.slice.hosts(), "the end of the job")

    def queue(self) -> str:
        """What Slurm still has to do."""
        return self.cluster.run("squeue", "-h").stdout

    @contextmanager
    def resource_manager(self) -> Iterator[None]:
        """One without a service, for the tasks that nobody looks after."""
        log = (self.directory / "rm.log").open("ab")
        with (
            log,
            subprocess.Popen(
                launch.rm_argv(self.settings),
                env=launch.rm_env(self.settings, self.cpu_address),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            ) as process,
        ):
            try:
                yield
            finally:
                process.terminate()


def wait(until: Callable[[], bool], what: str, timeout_s: float = _SOON_S) -> None:
    """Ends the program with a message if that takes too long."""
    deadline = time.monotonic() + timeout_s
    while not until():
        if time.monotonic() > deadline:
            raise SystemExit(f"not within {timeout_s:g} s: {what}")
        time.sleep(_POLL_S)


def measure(bench: Bench, kills: int, kills_alone: int, cred_expire_s: int) -> None:
    """Runs the three sides and prints what they took."""
    (bench.directory / "home" / "logs" / "slice-0").mkdir(parents=True)
    # The resource manager writes its report there.
    (bench.directory / "home" / "state").mkdir()
    alone_script = bench.directory / "alone.sh"
    alone_script.write_text(
        "#!/bin/bash\n"
        f'/bin/bash "{SLICE_SCRIPT}" "$@"\n'
        'exec scontrol requeue "${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}"\n'
    )
    fresh, alone = [], []
    with bench.resource_manager():
        print("fresh: sbatch of the task until it answers", flush=True)
        for first in (100, 200, 300):
            began = time.monotonic()
            job = bench.submit_alone(first, SLICE_SCRIPT)
            submitted_s = time.monotonic() - began
            _, times = bench.slice.wait(first - 1, _SOON_S)
            fresh.append(Times(times.launched + submitted_s, times.answered + submitted_s))
            print(f"    {fresh[-1]}", flush=True)
            bench.cancel(job)
        if kills_alone:
            print("alone: kill until it answers again", flush=True)
            job = bench.submit_alone(400, alone_script)
            alone = recoveries(bench.slice, kills_alone, _SOON_S + 2 * cred_expire_s)
            bench.cancel(job)
    for log in bench.slice.logs:
        log.unlink()  # the service's incarnations begin at 1
    print("supervised: kill until it answers again", flush=True)
    job = bench.sbatch_service()
    supervised = recoveries(bench.slice, kills, _SOON_S + 2 * cred_expire_s)
    bench.cancel(job)
    report(fresh, alone, supervised, cred_expire_s)


def report(
    fresh: list[Times], alone: list[Times], supervised: list[Times], cred_expire_s: int
) -> None:
    """Prints medians and ratios."""
    load = os.getloadavg()[0]
    print(f"\ncred_expire {cred_expire_s} s; load {load:.1f}; medians; the slowest in brackets")
    for name, times in (("fresh", fresh), ("alone", alone), ("supervised", supervised)):
        if times:
            print(f"{name:10} {median(times)}  ({max(t.answered for t in times):.2f})")
    answered = median(supervised).answered - median(fresh).answered
    launched = median(supervised).launched - median(fresh).launched
    print(
        f"supervised above fresh: {answered:+.2f} s, launched {launched:+.2f} s"
        f" (goal: at most {GOAL_ABOVE_FRESH_S:g} s)"
    )
    if alone:
        ratio = median(alone).answered / median(supervised).answered
        print(f"alone / supervised: {ratio:.1f} (goal: at least {GOAL_RATIO:g})")


def median(times: list[Times]) -> Times:
    """Of each of the two."""
    return Times(
        statistics.median(t.launched for t in times), statistics.median(t.answered for t in times)
    )


def main() -> int:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--kills-alone", type=int, default=1)
    parser.add_argument("--cred-expire", type=int, default=120)
    given = parser.parse_args()
    if os.geteuid() == 0:
        print("not as root: scripts/lib/ordinary.sh .venv/bin/python benchmarks/recovery.py")
        return 2
    with tempfile.TemporaryDirectory(prefix="recovery-") as path:
        options = Options(
            Path(path) / "c", slices=1, cred_expire_s=given.cred_expire, kill_wait_s=5
        )
        with DevCluster(options) as cluster:
            measure(Bench(cluster, Path(path)), given.kills, given.kills_alone, given.cred_expire)
    return 0


if __name__ == "__main__":
    sys.exit(main())
