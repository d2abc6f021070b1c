# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""A registry of two slices, and what happens to it."""

from pathways_emulator.membership import SliceMember
from pathways_emulator.registration import Registration, StopKind
from pathways_emulator.registry import Outcome, Registry, Stop, Welcome
from pathways_slurm.runtime_files import SliceReport

TIMEOUT_S = 10.0
# Unix time: whatever it is.
NOW = 1_800_000_000.0


class World:
    """A registry with a clock of its own, whose workers are named by (slice, host)."""

    def __init__(self, *, slices: int = 2, hosts: int = 1) -> None:
        self.now_s = 1000.0
        self.hosts = hosts
        self.registry = Registry(
            instance_type="tpuv6e:2x4",
            instance_count=slices,
            valid_hosts=frozenset({1, 2}),
            heartbeat_timeout_s=TIMEOUT_S,
            now_s=self.now_s,
        )
        self._connections = 0

    def join(
        self, slice_index: int, host: int = 0, *, run: int = 1, uuid: str = "", hosts: int = 0
    ) -> tuple[int, Outcome]:
        self._connections += 1
        registration = Registration(
            slice_index=slice_index,
            host_index=host,
            hosts=hosts or self.hosts,
            incarnation=run,
            process_uuid=uuid or f"uuid-{slice_index}-{host}-{run}",
            address="10.0.0.9:29001",
            pid=42,
        )
        return self._connections, self.registry.register(self._connections, registration)

    def joined(self, slice_index: int, host: int = 0, *, run: int = 1) -> int:
        connection, outcome = self.join(slice_index, host, run=run)
        assert Welcome(connection) in outcome.orders
        return connection

    def ticks(self, seconds: float, *heartbeats: int) -> list[Outcome]:
        """Time passes in ticks, during which these connections are heard."""
        outcomes = []
        for _ in range(round(seconds / self.registry.tick_s)):
            self.now_s += self.registry.tick_s
            for connection in heartbeats:
                self.registry.heard(connection)
            outcomes.append(self.registry.tick(self.now_s))
        return outcomes

    def member(self, index: int) -> SliceMember:
        return self.registry.snapshot(NOW).slices[index]

    def report(self, index: int) -> SliceReport:
        return self.registry.report().slices[index]

    def notice(self, connection: int, reason: str = "host 0 got SIGTERM") -> Outcome:
        return self.registry.notice(connection, reason, left_s=25.0, now=NOW)


def stops(outcome: Outcome) -> list[tuple[int, StopKind]]:
    return [(order.connection, order.kind) for order in outcome.orders if isinstance(order, Stop)]
