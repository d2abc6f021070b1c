# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What a request must be like for this machine, and what a submitter hands on with it."""

import os
from collections.abc import Mapping
from ipaddress import IPv4Network
from pathlib import Path

from pathways_slurm.scheduler.base import ArraySpec, SchedulerError
from pathways_slurm.scheduler.local_records import HostNode, Spec
from pathways_slurm.scheduler.local_view import slice_node

_KEPT = frozenset({"HOME", "LANG", "PATH", "TMPDIR", "TZ", "USER"})


def kept_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The part of a submitter's environment that its hosts' processes get."""
    return {
        name: value
        for name, value in environment.items()
        if name in _KEPT or name.startswith("LC_")
    }


def full_spec(spec: ArraySpec, network: IPv4Network, kill_wait_s: float) -> Spec:
    """The request with all that its runners need to know.

    Raises:
        SchedulerError: It can't be met; the message has every fault.
    """
    faults = [*_size_faults(spec, network), *_program_faults(spec), *_text_faults(spec)]
    if faults:
        raise SchedulerError(f"array {spec.tag!r} can't be submitted: {'; '.join(faults)}")
    indices = tuple(sorted(spec.indices))
    return Spec(
        tag=spec.tag,
        indices=indices,
        nodes=tuple(_nodes(network, index, spec.hosts_per_task) for index in indices),
        argv=spec.argv,
        env=kept_environment(os.environ) | dict(spec.env),
        first_incarnation=spec.first_incarnation,
        log_dir=str(spec.log_dir.absolute()),
        kill_wait_s=kill_wait_s,
    )


def _nodes(network: IPv4Network, index: int, hosts: int) -> tuple[HostNode, ...]:
    nodes = [slice_node(network, index, host) for host in range(hosts)]
    return tuple(HostNode(node.name, node.address) for node in nodes)


def _size_faults(spec: ArraySpec, network: IPv4Network) -> list[str]:
    faults = []
    if not spec.indices or min(spec.indices) < 0 or len(set(spec.indices)) < len(spec.indices):
        faults.append(f"indices {spec.indices} must be one or more different numbers >= 0")
    if spec.hosts_per_task < 1:
        faults.append(f"hosts_per_task {spec.hosts_per_task} must be at least 1")
    if spec.first_incarnation < 1:
        faults.append(f"first_incarnation {spec.first_incarnation} must be at least 1")
    if not faults:
        try:
            slice_node(network, max(spec.indices), spec.hosts_per_task - 1)
        except ValueError as fault:
            faults.append(str(fault))
    return faults


def _program_faults(spec: ArraySpec) -> list[str]:
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


def _text_faults(spec: ArraySpec) -> list[str]:
    faults = []
    if not spec.tag:
        faults.append("tag is empty; it must be unique to the submission")
    if any("\0" in word for word in spec.argv):
        faults.append("argv holds a NUL character")
    for name, value in spec.env.items():
        if not name or "=" in name or "\0" in name + value:
            faults.append(f"variable {name!r} has a name or a value that no environment can hold")
    return faults
