# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What the end of a worker says."""

from enum import IntEnum


class ExitCode(IntEnum):
    """What a worker's exit code says. Flags or environment that are wrong are 2, as everywhere."""

    ENDED = 0
    """SIGTERM, SIGINT, the service is ending, or nothing on the slice is needed any more: after a
    SIGTERM its data is saved, or the time until its death has passed."""
    CANNOT_LISTEN = 1
    """The port is taken, or the address is not this machine's."""
    REFUSED = 3
    """The resource manager refused the registration; the same one would be refused again."""
    STOPPED = 4
    """The resource manager said to stop: replaced by a newer incarnation, or another host of the
    slice ended."""
    LEASE_EXPIRED = 5
    """No contact with the resource manager for PATHWAYS_LEASE_S."""
