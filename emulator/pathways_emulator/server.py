# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The command in the place of ``/pathways/server``: resource manager or worker, by its flags.

Starts fast: no JAX here, and gRPC only once flags and environment are known to be right.
"""

import asyncio
import os
import sys

from pathways_emulator import flags, log, reading, settings
from pathways_emulator.flags import ResourceManagerFlags


def main() -> None:
    """Runs the command; ends the process."""
    faults: list[str] = []
    try:
        given = flags.read_server(sys.argv[1:], faults)
    except flags.HelpRequest as request:
        print(request)
        sys.exit(0)
    configured = settings.read(os.environ, faults)
    log.configure()
    if isinstance(given, ResourceManagerFlags):
        _check_instance_type(given, faults)
        _exit_on(faults)
        from pathways_emulator import resource_manager

        sys.exit(asyncio.run(resource_manager.run(given, configured)))

    from pathways_emulator import worker_environment

    place = worker_environment.read(os.environ, faults)
    _exit_on(faults)
    from pathways_emulator import worker

    sys.exit(asyncio.run(worker.run(given, configured, place)))


def _check_instance_type(given: ResourceManagerFlags, faults: list[str]) -> None:
    from pathways_slurm import topology

    if given.instance_type:
        try:
            topology.parse_instance_type(given.instance_type)
        except topology.TopologyError as error:
            faults.append(f"--instance_type: {error}")


def _exit_on(faults: list[str]) -> None:
    if faults:
        print(reading.report(flags.SERVER, faults), file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
