# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What the service adds to Slurm's own latencies: from its sbatch until cluster.env is there.

Usage: python benchmarks/service_start.py [--rounds N=3]

Brings up a real Slurm of its own (not as root: scripts/lib/ordinary.sh runs it as another user) and
measures in turns, so that what else the machine does meets all sides alike:

- slurm: a CPU job that submits an array task of one slice with the service's options, and the task
  does nothing: from sbatch until it has run on every node
- bare: the same with the resource manager, the proxy and the workers in these two jobs, and nobody
  to look after them: until every host and the proxy answer
- service: from sbatch of start_pathways.sh until cluster.env is there

and prints the medians and their differences, and when each step of the service's start was done.
"service" above "bare" is what the supervisor adds; "bare" above "slurm" is the runtime's own start.
"""

import argparse
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pathways_slurm import launch
from pathways_slurm.events import read_events
from pathways_slurm.probe import answering
from pathways_slurm.runtime_files import ORDERS_VARIABLE, REPORT_VARIABLE
from pathways_slurm.scheduler.slurm_options import SlurmOptions, sbatch_argv
from recovery import SLICE_SCRIPT, Bench, wait

# The devcluster is no part of the installed packages.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from slurm.devcluster.cluster import DevCluster
from slurm.devcluster.options import Options

GOAL_ABOVE_SLURM_S = 2.0
_SOON_S = 120.0


def slurm_alone(bench: Bench, first: int) -> float:
    """Seconds from the sbatch of a job until the task that it submits has run."""
    done = bench.directory / f"done{first}"
    task = bench.directory / "task.sh"
    task.write_text(f"#!/bin/bash\nsrun true && touch {shlex.quote(str(done))}\n")
    seconds = _timed(bench, first, task, ["sleep 60"], done.exists)
    done.unlink()
    return seconds


def bare(bench: Bench, first: int) -> float:
    """Seconds from the sbatch of a job without a supervisor until its parts answer."""
    settings, address = bench.settings, bench.cpu_address
    proxy = (address, settings.proxy_port)

    def up() -> bool:
        runs = {run for run, _ in bench.slice.hosts()}
        return (
            len(bench.slice.hosts()) == len(bench.slice.addresses)
            and runs == {first}
            and bool(answering([proxy]))
        )

    commands = [
        _command(launch.rm_argv(settings), launch.rm_env(settings, address)),
        _command(launch.proxy_argv(settings, address), launch.proxy_env(settings, address)),
    ]
    return _timed(bench, first, SLICE_SCRIPT, commands, up)


def _command(argv: Sequence[str], env: Mapping[str, str]) -> str:
    # Orders and report are the service's: to shut down, for instance.
    kept = {k: v for k, v in env.items() if k not in (ORDERS_VARIABLE, REPORT_VARIABLE)}
    return shlex.join(["env", *(f"{name}={value}" for name, value in kept.items()), *argv])


def _timed(
    bench: Bench, first: int, script: Path, commands: list[str], done: Callable[[], bool]
) -> float:
    """From the sbatch of a job that submits ``script`` and runs ``commands`` until ``done``."""
    spec = launch.array_spec(bench.settings, f"bare{first}", bench.cpu_address, [0], first)
    inner = sbatch_argv(spec, SlurmOptions(partition="tpu"), "", script)
    job = bench.directory / "job.sh"
    job.write_text(
        "#!/bin/bash\n"
        # As the service does it: nothing of this job's own may reach the inner one.
        'for name in "${!SLURM_@}"; do [[ ${name} == SLURM_CONF ]] || unset "${name}"; done\n'
        + f"{_command(inner, spec.env)} &\n"
        + "".join(f"{command} &\n" for command in commands)
        + "wait\n"
    )
    argv = ["sbatch", "--parsable", "--nodes=1", "--ntasks=1"]
    argv += [f"--output={bench.directory}/bare.log", str(job)]
    began = time.monotonic()
    subprocess.run(argv, env=bench.environ, capture_output=True, check=True)
    wait(done, "the start")
    seconds = time.monotonic() - began
    # Nobody else's jobs are on this cluster.
    jobs = bench.cluster.run("squeue", "-h", "-o", "%F").stdout.split()
    bench.cluster.run("scancel", *jobs)
    wait(lambda: not bench.queue() and not bench.slice.hosts(), "the end of the jobs")
    return seconds


def service(bench: Bench) -> tuple[float, dict[str, float]]:
    """Seconds from the service's sbatch until cluster.env; and those of each event on the way."""
    published = bench.directory / "home" / "cluster.env"
    before = len(read_events(bench.directory / "home" / "events.jsonl"))
    began, clock = time.monotonic(), time.time()
    job = bench.sbatch_service()
    wait(published.exists, "cluster.env")
    seconds = time.monotonic() - began
    events = read_events(bench.directory / "home" / "events.jsonl")[before:]
    bench.cancel(job)
    return seconds, {event.reason: event.time - clock for event in events}


def main() -> int:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    if os.geteuid() == 0:
        print("not as root: scripts/lib/ordinary.sh .venv/bin/python benchmarks/service_start.py")
        return 2
    with tempfile.TemporaryDirectory(prefix="start-") as path:
        options = Options(Path(path) / "c", slices=1, cred_expire_s=5, kill_wait_s=5)
        with DevCluster(options) as cluster:
            bench = Bench(cluster, Path(path))
            for name in ("logs/slice-0", "state"):
                (bench.directory / "home" / name).mkdir(parents=True)
            sides: dict[str, list[float]] = {"slurm": [], "bare": [], "service": []}
            for turn in range(rounds):
                sides["slurm"].append(slurm_alone(bench, 2 * turn + 1001))
                sides["bare"].append(bare(bench, 2 * turn + 1002))
                seconds, events = service(bench)
                sides["service"].append(seconds)
                took = ", ".join(f"{name} {times[-1]:.2f} s" for name, times in sides.items())
                steps = ", ".join(f"{reason} {at:.2f}" for reason, at in events.items())
                print(f"{took} ({steps})", flush=True)
    medians = {name: statistics.median(times) for name, times in sides.items()}
    print(f"load {os.getloadavg()[0]:.1f}; medians:")
    for name, median in medians.items():
        print(f"{name:8} {median:6.2f} s")
    print(f"service above bare  {medians['service'] - medians['bare']:+.2f} s")
    print(
        f"service above slurm {medians['service'] - medians['slurm']:+.2f} s"
        f" (goal: at most {GOAL_ABOVE_SLURM_S:g} s)"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
