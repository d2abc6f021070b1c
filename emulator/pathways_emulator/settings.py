# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What the emulator's processes need beyond Pathways' flags, from the environment."""

from collections.abc import Mapping
from dataclasses import dataclass

from pathways_emulator import address, reading
from pathways_emulator.reading import Reader

DEFAULT_BIND_ADDRESS = "127.0.0.1"
DEFAULT_HEARTBEAT_TIMEOUT_S = 10.0
DEFAULT_LEASE_S = 30.0


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of resource manager, proxy and worker.

    Attributes:
        bind_address: Address to bind, without a port.
        heartbeat_timeout_s: Silence after which the resource manager counts a worker as lost.
        lease_s: Time without the resource manager after which a worker ends itself.
    """

    bind_address: str
    heartbeat_timeout_s: float
    lease_s: float


def read(environment: Mapping[str, str], faults: list[str]) -> Settings:
    """Faults are appended to `faults`; if there is any, the result must not be used."""
    # An empty variable is an unset one, as everywhere in shells.
    reader = Reader({name: text for name, text in environment.items() if text}, faults)
    return Settings(
        bind_address=reader.optional("PATHWAYS_BIND_ADDRESS", address.host, DEFAULT_BIND_ADDRESS),
        heartbeat_timeout_s=reader.optional(
            "PATHWAYS_HEARTBEAT_TIMEOUT_S", reading.seconds, DEFAULT_HEARTBEAT_TIMEOUT_S
        ),
        lease_s=reader.optional("PATHWAYS_LEASE_S", reading.seconds, DEFAULT_LEASE_S),
    )
