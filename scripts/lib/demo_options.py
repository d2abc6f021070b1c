# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The demo's command line."""

import argparse
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from slurm.devcluster.programs import ProgramError, find_programs

from demo_slurm import cluster_options
from demo_stage import COMMAND

HOME_PREFIX = "pathways-demo-"
"""Of the name of a demo's directory, which is in the directory for temporary files."""

MIN_STEPS = 30


@dataclass(frozen=True)
class DemoOptions:
    """What the demo is asked for. ``hosts`` and ``chips_per_host`` follow from the shape."""

    slices: int
    slice_shape: str
    hosts: int
    chips_per_host: int
    min_slices: int
    steps: int
    slurm: bool
    json: Path | None
    keep: bool


def parse_options(argv: Sequence[str] | None) -> DemoOptions:
    """Reads the command line; exits 2 with every fault of it."""
    parser = argparse.ArgumentParser(
        prog="demo.sh",
        allow_abbrev=False,  # demo.sh looks for --slurm and --json too
        description="Brings a Pathways service up on this machine, trains on all its slices, kills "
        "one of them mid-way, and shows that training goes on and the slice comes back.",
    )
    add = parser.add_argument
    add("--slurm", action="store_true", help="on a real Slurm, brought up on this machine for it")
    add("--slices", type=int, default=3, metavar="N", help="slices, >= 2 (default 3)")
    add(
        "--slice-shape",
        metavar="S",
        help="chips of a v6e slice (default 2x2; with --slurm 2x4, which is two hosts)",
    )
    add(
        "--min-slices", type=int, metavar="M", help="slices needed, < N (default 2, or 1 if N is 2)"
    )
    add(
        "--steps", type=int, default=150, metavar="N",
        help=f"training steps, >= {MIN_STEPS} (default 150)",
    )  # fmt: skip
    add("--json", type=Path, metavar="FILE", help="write a summary there")
    add(
        "--keep", action="store_true", help="keep the directory of service and Slurm, with all logs"
    )
    given = parser.parse_args(argv)
    given.slice_shape = given.slice_shape or ("2x4" if given.slurm else "2x2")
    if given.min_slices is None:
        given.min_slices = 1 if given.slices == 2 else 2

    faults = list(_faults(given))
    given.hosts, given.chips_per_host = 1, 4
    try:
        given.hosts, given.chips_per_host = _hosts_of(given.slice_shape)
    except ValueError as error:
        faults.append(f"--slice-shape: {error}")
    if given.slurm:
        faults += _slurm_faults(given)
    if faults:
        parser.error("\n  ".join(["", *faults]))
    return DemoOptions(**vars(given))


def _faults(given: argparse.Namespace) -> Iterator[str]:
    if given.slices < 2:
        yield f"--slices must be >= 2, as one is killed; got {given.slices}"
    if not 1 <= given.min_slices < max(given.slices, 2):
        yield (
            f"--min-slices must be >= 1 and < --slices ({given.slices}), so that training can go "
            f"on without the slice that is killed; got {given.min_slices}"
        )
    if given.steps < MIN_STEPS:
        yield f"--steps must be >= {MIN_STEPS}, got {given.steps}"
    if given.json is not None and not given.json.absolute().parent.is_dir():
        yield f"--json: there is no directory {given.json.absolute().parent}"


def _hosts_of(shape: str) -> tuple[int, int]:
    """Hosts of a slice and chips of each. Raises ValueError with what is valid."""
    done = subprocess.run(
        [COMMAND, "topology", "--json", shape], capture_output=True, text=True, check=False,
        env={**os.environ, "TPU_TYPE": "v6e"},
    )  # fmt: skip
    if done.returncode != 0:
        raise ValueError(done.stderr.strip().removeprefix(f"{COMMAND.name}: "))
    topology = json.loads(done.stdout)
    return topology["hosts"], topology["chips_per_host"]


def _slurm_faults(given: argparse.Namespace) -> list[str]:
    faults = []
    try:
        find_programs()
    except ProgramError as error:
        faults.append(f"--slurm: {error}")
    # Not its name, but as long as that.
    home = Path(tempfile.gettempdir()).resolve() / f"{HOME_PREFIX}12345678"
    cluster = cluster_options(home, max(given.slices, 1), given.hosts, given.chips_per_host)
    faults += [f"--slurm: {fault}" for fault in cluster.faults()]
    return faults
