# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""``pathways-slurm topology SHAPE``."""

import json

import click

from pathways_slurm.cli.common import EXIT_USAGE, fail
from pathways_slurm.topology import TPU_TYPES, TopologyError, slice_environment, topology_for


@click.command(name="topology")
@click.argument("shape", metavar="SHAPE")
@click.option(
    "--tpu-type",
    default="v6e",
    show_default=True,
    envvar="TPU_TYPE",
    help=f"One of {', '.join(TPU_TYPES)}. Also read from TPU_TYPE.",
)
@click.option(
    "--chips-per-host",
    type=int,
    envvar="PATHWAYS_CHIPS_PER_HOST",
    help="8 makes 2x4 on v5e and v6e one host instead of two.",
)
@click.option("--num-slices", type=click.IntRange(1), default=1, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    shape: str, tpu_type: str, chips_per_host: int | None, num_slices: int, as_json: bool
) -> None:
    """Show chips, hosts, bounds and the TPU environment of a slice of SHAPE, such as 2x4."""
    try:
        topology = topology_for(tpu_type, shape, chips_per_host)
    except TopologyError as error:
        fail(str(error), EXIT_USAGE)
    environment = slice_environment(topology, num_slices=num_slices, coordinator="RM_ADDRESS")
    if as_json:
        facts = {
            "tpu_type": topology.tpu_type,
            "shape": topology.shape,
            "chips": topology.chips,
            "hosts": topology.hosts,
            "chips_per_host": topology.chips_per_host,
            "instance_type": topology.instance_type,
            "accelerator_type": topology.accelerator_type,
            "environment": environment,
        }
        click.echo(json.dumps(facts, indent=1))
        return
    hosts = f"{topology.hosts} host{'s' if topology.hosts != 1 else ''}"
    click.echo(
        f"{topology.tpu_type} {topology.shape}: {topology.chips} chips on {hosts} "
        f"of {topology.chips_per_host}; --instance_type={topology.instance_type}"
    )
    for name, value in environment.items():
        click.echo(f"{name}={value}")
