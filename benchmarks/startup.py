# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Measures how long things take to start.

Usage: python benchmarks/startup.py [RUNS=10]                    `pathways-slurm --help`
       python benchmarks/startup.py --containers [--rounds N=3]  services, in containers and not
"""

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

GOAL_S = 0.2
DEFAULT_RUNS = 10


def measure(command: list[str], runs: int) -> list[float]:
    """Wall-clock seconds of each run, the first (which may fill caches) left out."""
    seconds = []
    for _ in range(runs + 1):
        started = time.perf_counter()
        subprocess.run(command, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL, check=True)
        seconds.append(time.perf_counter() - started)
    return seconds[1:]


def main() -> int:
    """Runs what is asked for; returns 1 if it cannot be measured."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("runs", type=int, nargs="?", default=DEFAULT_RUNS, metavar="RUNS")
    parser.add_argument("--containers", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if options.containers:
        from container_start import compare

        return compare(options.rounds)
    return measure_help(options.runs)


def measure_help(runs: int) -> int:
    """Prints one line; returns 1 if the command cannot be run."""
    command = [str(Path(sys.prefix) / "bin" / "pathways-slurm"), "--help"]
    try:
        seconds = measure(command, runs)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"pathways-slurm --help: could not measure: {error}")
        return 1
    print(
        f"pathways-slurm --help: median {statistics.median(seconds):.3f} s of {runs} runs,"
        f" fastest {min(seconds):.3f} s, slowest {max(seconds):.3f} s (goal {GOAL_S} s)"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
