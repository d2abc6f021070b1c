# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Which workers are joined, and so which slices are alive: the resource manager's decisions.

Pure: events go in, orders for workers and lines for the log come out. Time comes in by `tick` only.

The rules:

- The newest incarnation of a slice wins: when one of its hosts registers, every older incarnation
  is over.
- A slice is alive while every host of its newest incarnation is joined.
- One host's end, by whatever cause, ends its incarnation for good. The other hosts are told to
  stop; only a greater incarnation can make the slice alive again.
- Silence is measured in time during which the registry was ticked: if the resource manager itself
  was stopped or starved, it could not have heard anybody, and nobody is lost for that.
"""

from dataclasses import dataclass, field
from enum import Enum

from pathways_emulator.membership import Membership, SliceMember

# Ticks and heartbeats per heartbeat timeout. A worker must miss several beats before it is lost.
TICKS_PER_TIMEOUT = 10
HEARTBEATS_PER_TIMEOUT = 5


@dataclass(frozen=True, slots=True)
class Registration:
    """What a worker says of itself.

    Attributes:
        slice_index: 0 .. instance_count-1.
        host_index: 0 .. hosts-1.
        hosts: Of the slice.
        incarnation: >= 1; a newer run of the slice has a greater one.
        process_uuid: Of the process, so that a second one with the same indices is noticed.
        address: For people.
        pid: For people.
    """

    slice_index: int
    host_index: int
    hosts: int
    incarnation: int
    process_uuid: str
    address: str
    pid: int


class StopKind(Enum):
    """Why a worker must end."""

    REFUSED = "refused"
    SUPERSEDED = "superseded"
    SLICE_ENDED = "slice ended"
    SHUTDOWN = "shutdown"


@dataclass(frozen=True, slots=True)
class Welcome:
    """The worker is joined."""

    connection: int


@dataclass(frozen=True, slots=True)
class Stop:
    """The worker must end itself."""

    connection: int
    kind: StopKind
    reason: str


type Order = Welcome | Stop


@dataclass(frozen=True, slots=True)
class Outcome:
    """What follows from an event: orders for workers, and sentences for the log."""

    orders: tuple[Order, ...] = ()
    log: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HostView:
    """A joined host, for status displays. `silent_s` is in seconds."""

    registration: Registration
    silent_s: float


@dataclass(slots=True)
class _Host:
    connection: int
    registration: Registration
    heard_s: float


@dataclass(slots=True)
class _Run:
    """The newest incarnation of a slice. `over` says why it is; "" while it is not."""

    incarnation: int
    hosts: int
    # Whether a reader of snapshots may know of this run or of one before it: see `snapshot`.
    known: bool
    joined: dict[int, _Host] = field(default_factory=dict)
    over: str = ""

    @property
    def alive(self) -> bool:
        return not self.over and len(self.joined) == self.hosts


class Registry:
    """The state behind a `Membership`; one event at a time.

    A connection is a number that the caller never uses twice.
    """

    def __init__(
        self,
        *,
        instance_type: str,
        instance_count: int,
        valid_hosts: frozenset[int],
        heartbeat_timeout_s: float,
        now_s: float,
    ) -> None:
        """
        Args:
            instance_type: Such as ``tpuv6e:2x4``.
            instance_count: Slices, dead or alive.
            valid_hosts: How many hosts a slice of that type can have.
            heartbeat_timeout_s: Silence after which a host is lost.
            now_s: Of the clock that `tick` will read too.
        """
        self._instance_type = instance_type
        self._instance_count = instance_count
        self._valid_hosts = valid_hosts
        self._timeout_s = heartbeat_timeout_s
        self._last_tick_s = now_s
        self._observed_s = 0.0
        self._settled = False
        self._runs: dict[int, _Run] = {}
        self._places: dict[int, tuple[int, int]] = {}
        self._shutdown_reason: str | None = None
        self._final: Membership | None = None

    @property
    def tick_s(self) -> float:
        """How often `tick` wants to be called, in seconds."""
        return self._timeout_s / TICKS_PER_TIMEOUT

    @property
    def heartbeat_interval_s(self) -> float:
        """How often workers should send a heartbeat, in seconds."""
        return self._timeout_s / HEARTBEATS_PER_TIMEOUT

    @property
    def heartbeat_timeout_s(self) -> float:
        """Silence after which a host is lost, in seconds."""
        return self._timeout_s

    @property
    def shutting_down(self) -> bool:
        return self._shutdown_reason is not None

    def register(self, connection: int, registration: Registration) -> Outcome:
        """A worker asks to be joined. It gets Welcome or Stop; others may get Stop."""
        place = _place(registration)
        if self._shutdown_reason is not None:
            stop = Stop(connection, StopKind.SHUTDOWN, self._shutdown_reason)
            return Outcome((stop,), (f"{place} told to stop: {stop.reason}",))
        stop_or_none = self._objection(connection, registration)
        if stop_or_none is not None:
            return Outcome((stop_or_none,), (f"{place} turned away: {stop_or_none.reason}",))

        run = self._runs.get(registration.slice_index)
        orders: list[Order] = []
        log: list[str] = []
        if run is None or registration.incarnation > run.incarnation:
            if run is not None:
                reason = (
                    f"incarnation {run.incarnation} of slice {registration.slice_index} was "
                    f"replaced by incarnation {registration.incarnation}"
                )
                orders += self._release(run, StopKind.SUPERSEDED, reason)
                log.append(reason)
            run = _Run(registration.incarnation, registration.hosts, known=run is not None)
            self._runs[registration.slice_index] = run

        before = run.joined.get(registration.host_index)
        if before is not None:
            # The same process over a new stream; the end of the old one no longer matters.
            self._places.pop(before.connection, None)
        run.joined[registration.host_index] = _Host(connection, registration, self._observed_s)
        self._places[connection] = (registration.slice_index, registration.host_index)
        orders.append(Welcome(connection))
        log.append(
            f"{place} joined from {registration.address} (pid {registration.pid}), "
            f"{len(run.joined)} of {run.hosts} hosts"
        )
        if run.alive and before is None:
            run.known = True
            log.append(f"slice {registration.slice_index} is alive")
        return Outcome(tuple(orders), (*log, *self._settle()))

    def heard(self, connection: int) -> None:
        """A message came from a worker."""
        host = self._host(connection)
        if host is not None:
            host.heard_s = self._observed_s

    def leave(self, connection: int, reason: str) -> Outcome:
        """A worker says that it ends."""
        return self._lose(connection, f"left: {reason}")

    def closed(self, connection: int) -> Outcome:
        """A worker's stream ended: its process is dead. Does nothing for one told to stop."""
        return self._lose(connection, "ended: connection closed")

    def tick(self, now_s: float) -> Outcome:
        """Time passes; hosts that were silent for too long are lost.

        Args:
            now_s: Of a clock that never goes back.
        """
        elapsed_s = now_s - self._last_tick_s
        self._last_tick_s = now_s
        self._observed_s += min(elapsed_s, 2 * self.tick_s)
        orders: list[Order] = []
        log: list[str] = []
        silent = [
            host
            for run in self._runs.values()
            for host in run.joined.values()
            if self._observed_s - host.heard_s > self._timeout_s
        ]
        for host in silent:
            cause = f"lost: silent for more than {self._timeout_s:g} s"
            outcome = self._lose(host.connection, cause, stop_it=True)
            orders += outcome.orders
            log += outcome.log
        return Outcome(tuple(orders), (*log, *self._settle()))

    def announce_shutdown(self, reason: str) -> Outcome:
        """The service ends: everybody is told to stop, and `snapshot` no longer changes."""
        if self._shutdown_reason is not None:
            return Outcome()
        self._final = self.snapshot()
        self._shutdown_reason = reason
        orders: list[Order] = []
        for run in self._runs.values():
            orders += self._release(run, StopKind.SHUTDOWN, reason)
            run.over = run.over or reason
        return Outcome(tuple(orders), (f"shutdown announced: {reason}",))

    def snapshot(self) -> Membership:
        """All slices as they are now.

        An incarnation that is not complete yet is reported as 0 unless an earlier one of its slice
        was known: after a restart of the resource manager, a slice whose hosts are still coming
        back must not look like one that has lost a host.
        """
        if self._final is not None:
            return self._final
        members = tuple(self._member(index) for index in range(self._instance_count))
        return Membership(self._instance_type, self._settled, members)

    def hosts(self) -> tuple[HostView, ...]:
        """Joined hosts, ordered by slice and host."""
        return tuple(
            HostView(host.registration, self._observed_s - host.heard_s)
            for _, run in sorted(self._runs.items())
            for _, host in sorted(run.joined.items())
        )

    def _member(self, index: int) -> SliceMember:
        run = self._runs.get(index)
        if run is None:
            return SliceMember(index, 0, False, "no worker has registered")
        if run.alive:
            return SliceMember(index, run.incarnation, True)
        reason = run.over or (
            f"{len(run.joined)} of {run.hosts} hosts of incarnation {run.incarnation} registered"
        )
        return SliceMember(index, run.incarnation if run.known else 0, False, reason)

    def _objection(self, connection: int, registration: Registration) -> Stop | None:
        """Why this worker cannot be joined, if so."""
        fault = self._fault(registration)
        if fault:
            return Stop(connection, StopKind.REFUSED, fault)
        run = self._runs.get(registration.slice_index)
        if run is None or registration.incarnation > run.incarnation:
            return None
        name = f"incarnation {registration.incarnation} of slice {registration.slice_index}"
        if registration.incarnation < run.incarnation:
            reason = f"{name} was replaced by incarnation {run.incarnation}"
            return Stop(connection, StopKind.SUPERSEDED, reason)
        if run.over:
            reason = f"{name} is over: {run.over}; a new run needs a greater PATHWAYS_INCARNATION"
            return Stop(connection, StopKind.SLICE_ENDED, reason)
        if registration.hosts != run.hosts:
            reason = (
                f"the worker says that {name} has {registration.hosts} hosts, but other workers "
                f"said {run.hosts}; check PATHWAYS_NODE_ADDRESSES of each"
            )
            return Stop(connection, StopKind.REFUSED, reason)
        held = run.joined.get(registration.host_index)
        if held is not None and held.registration.process_uuid != registration.process_uuid:
            reason = (
                f"host {registration.host_index} of {name} is another process already, pid "
                f"{held.registration.pid} at {held.registration.address}; check "
                "PATHWAYS_SLICE_INDEX, PATHWAYS_HOST_INDEX and PATHWAYS_INCARNATION of both"
            )
            return Stop(connection, StopKind.REFUSED, reason)
        return None

    def _fault(self, registration: Registration) -> str:
        if not 0 <= registration.slice_index < self._instance_count:
            return (
                f"PATHWAYS_SLICE_INDEX is {registration.slice_index}, but valid is 0 to "
                f"{self._instance_count - 1} (--instance_count={self._instance_count})"
            )
        if registration.hosts not in self._valid_hosts:
            valid = " or ".join(str(hosts) for hosts in sorted(self._valid_hosts))
            return (
                f"the slice has {registration.hosts} hosts (PATHWAYS_NODE_ADDRESSES), but valid "
                f"for --instance_type={self._instance_type} is {valid}"
            )
        if not 0 <= registration.host_index < registration.hosts:
            return (
                f"PATHWAYS_HOST_INDEX is {registration.host_index}, but valid is 0 to "
                f"{registration.hosts - 1} (the slice has {registration.hosts} hosts)"
            )
        if registration.incarnation < 1:
            return f"PATHWAYS_INCARNATION is {registration.incarnation}, but valid is >= 1"
        if not registration.process_uuid:
            return "the registration has no process_uuid"
        return ""

    def _lose(self, connection: int, cause: str, *, stop_it: bool = False) -> Outcome:
        """A joined host is gone, and its incarnation with it."""
        place = self._places.get(connection)
        if place is None:
            return Outcome()
        index, host_index = place
        run = self._runs[index]
        was_alive = run.alive
        run.known = True
        run.over = f"host {host_index} {cause}"
        if not stop_it:
            del run.joined[host_index]
            del self._places[connection]
        name = f"slice {index} (incarnation {run.incarnation})"
        reason = f"{name} is over: {run.over}"
        orders = self._release(run, StopKind.SLICE_ENDED, reason)
        lost = f"{name} is lost: {run.over}" if was_alive else reason
        told = f"; told {len(orders)} to stop" if orders else ""
        return Outcome(tuple(orders), (lost + told,))

    def _release(self, run: _Run, kind: StopKind, reason: str) -> list[Order]:
        """Tells the joined hosts of a run to stop; from now on they are not ours."""
        orders: list[Order] = []
        for host in run.joined.values():
            self._places.pop(host.connection, None)
            orders.append(Stop(host.connection, kind, reason))
        run.joined.clear()
        return orders

    def _settle(self) -> tuple[str, ...]:
        """Whether absence means loss: when all are here, or had the time to come back."""
        if self._settled:
            return ()
        alive = sum(run.alive for run in self._runs.values())
        if alive < self._instance_count and self._observed_s < self._timeout_s:
            return ()
        self._settled = True
        return (f"settled with {alive} of {self._instance_count} slices alive",)

    def _host(self, connection: int) -> _Host | None:
        place = self._places.get(connection)
        return None if place is None else self._runs[place[0]].joined.get(place[1])


def _place(registration: Registration) -> str:
    return (
        f"slice {registration.slice_index} host {registration.host_index} "
        f"(incarnation {registration.incarnation})"
    )
