# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What a request must be like for this machine, and what a submitter hands on with it."""

import os
from ipaddress import IPv4Network

from pathways_slurm.scheduler.base import ArraySpec, SchedulerError
from pathways_slurm.scheduler.local_records import HostNode, Spec
from pathways_slurm.scheduler.local_view import slice_node
from pathways_slurm.scheduler.spec_checks import (
    kept_environment,
    number_faults,
    program_faults,
    text_faults,
)


def full_spec(spec: ArraySpec, network: IPv4Network, kill_wait_s: float) -> Spec:
    """The request with all that its runners need to know.

    Raises:
        SchedulerError: It can't be met; the message has every fault.
    """
    faults = [*_size_faults(spec, network), *program_faults(spec), *text_faults(spec)]
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
    faults = number_faults(spec)
    if not faults:
        try:
            slice_node(network, max(spec.indices), spec.hosts_per_task - 1)
        except ValueError as fault:
            faults.append(str(fault))
    return faults
