# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a request in itself, and what a submitter hands on. The same everywhere."""

import os
from collections.abc import Mapping
from pathlib import Path

from pathways_slurm.scheduler.base import ArraySpec

_KEPT = frozenset({"HOME", "LANG", "PATH", "TMPDIR", "TZ", "USER"})


def kept_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The part of a submitter's environment that its hosts' processes get."""
    return {
        name: value
        for name, value in environment.items()
        if name in _KEPT or name.startswith("LC_")
    }


def number_faults(spec: ArraySpec) -> list[str]:
    """Of indices, hosts and incarnation."""
    faults = []
    if not spec.indices or min(spec.indices) < 0 or len(set(spec.indices)) < len(spec.indices):
        faults.append(f"indices {spec.indices} must be one or more different numbers >= 0")
    if spec.hosts_per_task < 1:
        faults.append(f"hosts_per_task {spec.hosts_per_task} must be at least 1")
    if spec.first_incarnation < 1:
        faults.append(f"first_incarnation {spec.first_incarnation} must be at least 1")
    return faults


def program_faults(spec: ArraySpec) -> list[str]:
    """Of the program, as this machine sees it."""
    if not spec.argv:
        return ["argv is empty; its first word is an absolute path of a program"]
    program = Path(spec.argv[0])
    if not program.is_absolute():
        return [f"program {spec.argv[0]!r} is not an absolute path"]
    if not program.is_file():
        return [f"program {program} is not a file"]
    if not os.access(program, os.X_OK):
        return [f"program {program} is not executable (chmod +x it)"]
    return []


def text_faults(spec: ArraySpec) -> list[str]:
    """Of tag, arguments and variables."""
    faults = []
    if not spec.tag:
        faults.append("tag is empty; it must be unique to the submission")
    if any("\0" in word for word in spec.argv):
        faults.append("argv holds a NUL character")
    for name, value in spec.env.items():
        if not name or "=" in name or "\0" in name + value:
            faults.append(f"variable {name!r} has a name or a value that no environment can hold")
    return faults
