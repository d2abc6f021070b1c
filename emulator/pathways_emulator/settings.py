# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What the emulator's processes need beyond Pathways' flags, from the environment."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pathways_emulator import address, reading
from pathways_emulator.reading import Reader
from pathways_slurm import runtime_files

ON_NOTICE_VARIABLE = "PATHWAYS_ON_NOTICE"
NOTICE_VARIABLE = "PATHWAYS_NOTICE_S"

DEFAULT_BIND_ADDRESS = "127.0.0.1"
DEFAULT_HEARTBEAT_TIMEOUT_S = 10.0
DEFAULT_LEASE_S = 30.0
# Slurm's KillWait is 30 s by default; the last worker must have ended before it has passed.
DEFAULT_NOTICE_S = 25.0

type OnNotice = Literal["suspend", "forward"]
_ON_NOTICE: tuple[OnNotice, ...] = ("suspend", "forward")
DEFAULT_ON_NOTICE: OnNotice = "suspend"


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of resource manager, proxy and worker.

    Attributes:
        bind_address: Address to bind, without a port.
        heartbeat_timeout_s: Silence after which the resource manager counts a worker as lost.
        lease_s: Time without the resource manager after which a worker ends itself.
        on_notice: What the proxy does when a slice is about to go: ``suspend`` saves what is on the
            slice and waits for its return, ``forward`` leaves that to the program.
        notice_s: Time from a worker's SIGTERM until it is killed; it ends itself when that has
            passed. 0: it ends at once.
        report_file: Where the resource manager writes its report; None for nowhere.
        orders_file: Where the resource manager reads its orders; None for nowhere.
    """

    bind_address: str
    heartbeat_timeout_s: float
    lease_s: float
    on_notice: OnNotice
    notice_s: float
    report_file: Path | None
    orders_file: Path | None


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
        on_notice=reader.optional(ON_NOTICE_VARIABLE, on_notice, DEFAULT_ON_NOTICE),
        notice_s=reader.optional(NOTICE_VARIABLE, reading.seconds_or_zero, DEFAULT_NOTICE_S),
        report_file=reader.optional(runtime_files.REPORT_VARIABLE, reading.file_to_write, None),
        orders_file=reader.optional(runtime_files.ORDERS_VARIABLE, reading.file_to_write, None),
    )


def on_notice(text: str) -> OnNotice:
    """What the proxy does for a slice that is about to go.

    Raises:
        ValueError: Not a word for it.
    """
    return reading.choice(text, _ON_NOTICE)
