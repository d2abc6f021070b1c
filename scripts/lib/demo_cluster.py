# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Keeps a devcluster up for as long as this process lives; SIGTERM ends both in order.

The demo starts it as a child that gets SIGTERM when the demo ends, however that ends: so a demo
that was killed leaves no Slurm behind. Exit status: 0 ended by order, 1 if not, 2 for bad options.
"""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from slurm.devcluster import lifecycle
from slurm.devcluster.options import Options, OptionsError
from slurm.devcluster.render import Layout

_JOBS_S = 40.0
_COMMAND_S = 20.0
_POLL_S = 0.2


def parse_options(argv: Sequence[str] | None) -> Options:
    """Reads the command line."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--dir", dest="directory", type=Path, required=True)
    for name in ("slices", "hosts-per-slice", "chips-per-host", "cred-expire-s"):
        parser.add_argument(f"--{name}", type=int, required=True)
    return Options(**vars(parser.parse_args(argv)))


def main(argv: Sequence[str] | None = None) -> int:
    """Brings the cluster up and keeps it; see the module for the exit status."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    options = parse_options(argv)
    layout: Layout | None = None
    try:
        layout = lifecycle.up(options, say)
        say("the cluster is up")
        while True:
            time.sleep(_POLL_S)  # a signal ends it
    except OptionsError as error:
        say("\n".join(error.faults))
        return 2
    except (lifecycle.ClusterError, lifecycle.DifferentOptionsError) as error:
        say(str(error))
        return 1
    finally:
        if layout is not None:
            end_jobs(layout)
            lifecycle.down(options.directory, keep_logs=True)


def end_jobs(layout: Layout) -> None:
    """Cancels what is in the queue and gives it time to end in order."""
    env = lifecycle.client_environment(layout.conf, os.environ)
    deadline = time.monotonic() + _JOBS_S

    def run(*argv: str) -> str:
        return subprocess.run(
            argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
            timeout=_COMMAND_S, check=True,
        ).stdout  # fmt: skip

    # If Slurm does not answer, what is left is ended without it.
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        while (jobs := run("squeue", "-h", "-o", "%A").split()) and time.monotonic() < deadline:
            run("scancel", *jobs)
            time.sleep(_POLL_S)


def say(text: str) -> None:
    print(text, flush=True)


def _end(_number: int, _frame: object) -> NoReturn:
    # Once more must not interrupt the clearing up.
    for other in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(other, signal.SIG_IGN)
    sys.exit(0)


if __name__ == "__main__":
    sys.exit(main())
