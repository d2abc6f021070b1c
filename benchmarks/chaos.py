# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Random faults while a service trains, and the invariants checked from outside.

Usage: python benchmarks/chaos.py [--faults N] [--seed S] [--scheduler slurm|local] ...

On a devcluster of its own, as an ordinary user (root: scripts/lib/ordinary.sh runs it as one). With
--namespaces USER, root runs it in a checkout that USER can read, and nodes have networks to cut.
The same seed gives the same schedule. Exit code 1: an invariant was violated; everything is then
left in the directory that is printed.
"""

import argparse
import math
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

# Devcluster and tests are no part of the installed packages.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from slurm.devcluster.cluster import DevCluster
from slurm.devcluster.options import Options
from tests.chaos.campaign import Campaign, Report
from tests.chaos.checker import Checker
from tests.chaos.faults import Fault, process_faults
from tests.chaos.faults_service import service_faults
from tests.chaos.faults_slurm import slurm_faults
from tests.chaos.stage import LocalStage, SlurmStage, Stage, subject_of


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Chaos, and the invariants that must hold in it.")
    add = parser.add_argument
    add("--faults", type=int, default=500, help="how many (default: %(default)s)")
    add("--minutes", type=float, default=math.inf, help="begin none after that (default: all)")
    add("--seed", type=int, help="of the schedule (default: a new one, which is printed)")
    add("--scheduler", choices=["slurm", "local"], default="slurm")
    add("--slices", type=int, default=4, help="of two hosts each (default: %(default)s)")
    add("--network", help="of the devcluster, 127.X.0.0/16 (default: one that is free)")
    add("--namespaces", metavar="USER", help="by root: each node a machine, jobs of this user")
    add("--only", action="append", metavar="KIND", help="only this kind of fault; may be repeated")
    add("--keep", action="store_true", help="leave the files, whatever comes of it")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    # As Ctrl-C: what was started has to be ended.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    directory = Path(tempfile.mkdtemp(prefix="chaos-"))
    print(f"seed {seed}; files in {directory}", flush=True)
    stage: Stage
    (directory / "training").mkdir()
    if options.scheduler == "local":
        stage = LocalStage(directory / "home", options.slices)
        faults = [*process_faults(), *service_faults(cleaned_up=False)]
        report = perform(stage, faults, directory, seed, options)
    else:
        user = options.namespaces
        if user is not None:
            # Its owner is the user, and the cluster's own directory below it is of all users.
            for path in (directory, directory / "training"):
                shutil.chown(path, user, user)
            directory.chmod(0o755)
        # Of a path as short as it can be: the daemons' sockets are in it.
        shape = Options(
            directory / "c",
            slices=options.slices,
            cred_expire_s=5,
            kill_wait_s=5,
            grace_time_s=2,
            network=options.network,
            namespaces=user is not None,
        )
        with DevCluster(shape) as cluster:
            slurm = stage = SlurmStage(directory / "home", cluster, user)
            faults = [*process_faults(), *service_faults(cleaned_up=True), *slurm_faults(slurm)]
            report = perform(stage, faults, directory, seed, options)
            if report.violations:
                shutil.copytree(cluster.directory / "controller", directory / "slurmctld")
    print("\n".join(report.lines()), flush=True)
    if report.violations or options.keep:
        print(f"everything is in {directory}")
    else:
        shutil.rmtree(directory)
    return 1 if report.violations else 0


def perform(
    stage: Stage, faults: list[Fault], directory: Path, seed: int, options: argparse.Namespace
) -> Report:
    if options.only:
        faults = [fault for fault in faults if fault.name in options.only]
    checker = Checker(subject_of(stage))
    began = time.monotonic()

    def say(words: str) -> None:
        print(f"{time.monotonic() - began:7.1f} s  {words}", flush=True)

    try:
        return Campaign(stage, faults, checker, directory / "training", say).run(
            seed, options.faults, options.minutes * 60
        )
    finally:
        stage.close()
        checker.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
