# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Measures how long `pathways-slurm --help` takes. Usage: python benchmarks/startup.py [RUNS]"""

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


def main(arguments: list[str]) -> int:
    """Prints one line; returns 1 if the command cannot be run."""
    runs = int(arguments[0]) if arguments else DEFAULT_RUNS
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
    sys.exit(main(sys.argv[1:]))
