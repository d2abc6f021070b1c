# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Which workers are joined, and so which slices are alive: the resource manager's decisions.

Pure: events go in, orders for workers and lines for the log come out. Time comes in by `tick`, and
as Unix time where a deadline is meant that other processes know too.

The rules:

- The newest incarnation of a slice wins: when one of its hosts registers, every older incarnation
  is over.
- A slice is alive while every host of its newest incarnation is joined.
- One host's end, by whatever cause, ends its incarnation for good. The other hosts are told to
  stop; only a greater incarnation can make the slice alive again.
- Silence is measured in time during which the registry was ticked: if the resource manager itself
  was stopped or starved, it could not have heard anybody, and nobody is lost for that.
- A notice that one host gives is its slice's, and the first one counts. It changes nothing by
  itself: the slice is alive until it ends, or until it is released because nothing on it is needed
  any more. A release is an end like any other, but no failure.
"""

from dataclasses import dataclass, replace

from pathways_emulator.admission import Admission, Objection, conflict
from pathways_emulator.membership import Membership, SliceMember
from pathways_emulator.registration import Registration, StopKind
from pathways_emulator.slice_run import Host, Run
from pathways_slurm.runtime_files import (
    EndKind,
    FirstEnd,
    Notice,
    Orders,
    Report,
    SliceOrder,
    SliceReport,
)

# Ticks and heartbeats per heartbeat timeout. A worker must miss several beats before it is lost.
TICKS_PER_TIMEOUT = 10
HEARTBEATS_PER_TIMEOUT = 5

_NOBODY = "no worker has registered"


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

    def __add__(self, later: "Outcome") -> "Outcome":
        return Outcome(self.orders + later.orders, self.log + later.log)


@dataclass(frozen=True, slots=True)
class HostView:
    """A joined host, for status displays. `silent_s` is in seconds."""

    registration: Registration
    silent_s: float


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
        self._admission = Admission(instance_type, instance_count, valid_hosts)
        self._timeout_s = heartbeat_timeout_s
        self._last_tick_s = now_s
        self._observed_s = 0.0
        self._settled = False
        self._runs: dict[int, Run] = {}
        self._places: dict[int, tuple[int, int]] = {}
        self._orders = Orders()
        self._shutdown_reason: str | None = None
        self._final: tuple[Membership, Report] | None = None

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
        if self._shutdown_reason is not None:
            stop = Stop(connection, StopKind.SHUTDOWN, self._shutdown_reason)
            return Outcome((stop,), (f"{registration.place} told to stop: {stop.reason}",))
        objection = self._admission.fault(registration)
        if objection is not None:
            return _turned_away(connection, registration, objection)
        begun = self._begin_run(registration)
        run = self._runs[registration.slice_index]
        objection = conflict(registration, run)
        if objection is not None:
            return begun + _turned_away(connection, registration, objection)

        before = run.joined.get(registration.host_index)
        if before is not None:
            # The same process over a new stream; the end of the old one no longer matters.
            self._places.pop(before.connection, None)
        run.joined[registration.host_index] = Host(connection, registration, self._observed_s)
        self._places[connection] = (registration.slice_index, registration.host_index)
        log = [
            f"{registration.place} joined from {registration.address} (pid {registration.pid}), "
            f"{len(run.joined)} of {run.hosts} hosts"
        ]
        if run.alive and before is None:
            run.known = True
            log.append(f"slice {registration.slice_index} is alive")
        return begun + Outcome((Welcome(connection),), (*log, *self._settle()))

    def heard(self, connection: int) -> None:
        """A message came from a worker."""
        host = self._host(connection)
        if host is not None:
            host.heard_s = self._observed_s

    def notice(self, connection: int, reason: str, left_s: float, now: float) -> Outcome:
        """A worker says that its slice is about to go.

        Args:
            connection: Of the worker.
            reason: For people.
            left_s: Seconds from `now` until its process will be killed.
            now: Unix time.
        """
        place = self._places.get(connection)
        if place is None:
            return Outcome()
        run = self._runs[place[0]]
        if run.notice is not None:
            return Outcome()
        run.notice = Notice(reason, now + left_s)
        noticed = Outcome((), (f"{run.name} has {left_s:.1f} s left: {reason}",))
        if self._settled and not run.alive:
            # It was never complete, so nothing can be on it.
            return noticed + self.release(run.slice_index, run.incarnation, "nothing was on it")
        return noticed

    def release(self, slice_index: int, incarnation: int, reason: str) -> Outcome:
        """Nothing on that run is needed any more: its workers may end.

        Does nothing if the run is over already, or is not the slice's newest.
        """
        run = self._runs.get(slice_index)
        if run is None or run.incarnation != incarnation or run.over:
            return Outcome()
        run.released = True
        orders = self._end(run, StopKind.RELEASED, reason)
        return Outcome(orders, (f"{run.name} is released: {reason}{_told(orders)}",))

    def obey(self, orders: Orders) -> Outcome:
        """Follows the supervisor's orders, which take the place of those before.

        They hold for workers that register later, too: a resource manager that has restarted reads
        its orders before its workers are back.
        """
        self._orders = orders
        outcome = Outcome()
        for order in orders.released:
            outcome += self.release(order.index, order.incarnation, order.reason)
        if orders.shutdown:
            outcome += self.announce_shutdown(orders.shutdown)
        return outcome

    def leave(self, connection: int, reason: str) -> Outcome:
        """A worker says that it ends."""
        return self._lose(connection, f"left: {reason}", EndKind.LEFT)

    def closed(self, connection: int) -> Outcome:
        """A worker's stream ended: its process is dead. Does nothing for one told to stop."""
        return self._lose(connection, "ended: connection closed", EndKind.BROKEN)

    def tick(self, now_s: float) -> Outcome:
        """Time passes; hosts that were silent for too long are lost.

        Args:
            now_s: Of a clock that never goes back.
        """
        elapsed_s = now_s - self._last_tick_s
        self._last_tick_s = now_s
        self._observed_s += min(elapsed_s, 2 * self.tick_s)
        silent = [
            host
            for run in self._runs.values()
            for host in run.joined.values()
            if self._observed_s - host.heard_s > self._timeout_s
        ]
        outcome = Outcome()
        for host in silent:
            cause = f"lost: silent for more than {self._timeout_s:g} s"
            outcome += self._lose(host.connection, cause, EndKind.SILENT)
        return outcome + Outcome((), self._settle())

    def announce_shutdown(self, reason: str) -> Outcome:
        """The service ends: everybody is told to stop, and what others see no longer changes."""
        if self._shutdown_reason is not None:
            return Outcome()
        last = self.snapshot(now=0.0)
        # A notice in the last snapshot would ask for something to be saved.
        members = tuple(replace(member, notice=None) for member in last.slices)
        self._final = replace(last, slices=members), replace(self.report(), shutting_down=True)
        self._shutdown_reason = reason
        orders: list[Order] = []
        for run in self._runs.values():
            orders += self._end(run, StopKind.SHUTDOWN, reason)
        return Outcome(tuple(orders), (f"shutdown announced: {reason}",))

    def snapshot(self, now: float) -> Membership:
        """All slices as they are now.

        An incarnation that is not complete yet is reported as 0 unless an earlier one of its slice
        was known: see `Run.known`.

        Args:
            now: Unix time.
        """
        if self._final is not None:
            return self._final[0]
        members = tuple(self._member(index, now) for index in range(self._instance_count))
        return Membership(self._instance_type, self._settled, members)

    def report(self) -> Report:
        """All slices, as the supervisor needs to know them."""
        if self._final is not None:
            return self._final[1]
        slices = tuple(
            SliceReport(index, 0, False, _NOBODY)
            if (run := self._runs.get(index)) is None
            else run.report()
            for index in range(self._instance_count)
        )
        return Report(self._settled, False, slices)

    def hosts(self) -> tuple[HostView, ...]:
        """Joined hosts, ordered by slice and host."""
        return tuple(
            HostView(host.registration, self._observed_s - host.heard_s)
            for _, run in sorted(self._runs.items())
            for _, host in sorted(run.joined.items())
        )

    def _begin_run(self, registration: Registration) -> Outcome:
        """Makes the registration's run the slice's newest, if it is newer."""
        index, incarnation = registration.slice_index, registration.incarnation
        before = self._runs.get(index)
        if before is not None and incarnation <= before.incarnation:
            return Outcome()
        run = Run(index, incarnation, registration.hosts, known=before is not None)
        self._runs[index] = run
        outcome = Outcome()
        if before is not None:
            reason = (
                f"incarnation {before.incarnation} of slice {index} was replaced by incarnation "
                f"{incarnation}"
            )
            outcome = Outcome(self._end(before, StopKind.SUPERSEDED, reason), (reason,))
        for order in self._orders.released:
            if _is_about(order, run):
                outcome += self.release(index, incarnation, order.reason)
        return outcome

    def _lose(self, connection: int, cause: str, kind: EndKind) -> Outcome:
        """A joined host is gone, and its incarnation with it. A silent one is told to stop, too."""
        place = self._places.get(connection)
        if place is None:
            return Outcome()
        index, host_index = place
        run = self._runs[index]
        was_alive = run.alive
        if was_alive or kind is not EndKind.LEFT:
            # Whoever leaves a run that was never complete may do so for a host that never joined.
            run.first_end = FirstEnd(host_index, kind)
        if kind is not EndKind.SILENT:
            del run.joined[host_index]
            del self._places[connection]
        over = f"host {host_index} {cause}"
        reason = f"{run.name} is over: {over}"
        orders = self._end(run, StopKind.SLICE_ENDED, reason, over)
        lost = f"{run.name} is lost: {over}" if was_alive else reason
        return Outcome(orders, (f"{lost}{_told(orders)}",))

    def _end(self, run: Run, kind: StopKind, reason: str, over: str = "") -> tuple[Stop, ...]:
        """Ends a run and tells its joined hosts `reason`; from now on they are not ours.

        Args:
            run: It may be over already.
            kind: For the hosts.
            reason: For the hosts.
            over: Why the run is over, if that is not the same.
        """
        connections = run.end(over or reason)
        for connection in connections:
            self._places.pop(connection, None)
        return tuple(Stop(connection, kind, reason) for connection in connections)

    def _member(self, index: int, now: float) -> SliceMember:
        run = self._runs.get(index)
        newest = 0 if run is None else run.incarnation
        abandoned = next(
            (
                order.reason
                for order in self._orders.abandoned
                if order.index == index and order.incarnation >= newest
            ),
            "",
        )
        if run is None:
            return SliceMember(index, 0, False, _NOBODY, abandoned=abandoned)
        return run.member(now, abandoned)

    def _settle(self) -> tuple[str, ...]:
        """Whether absence means loss: when all are here, or had the time to come back."""
        if self._settled:
            return ()
        alive = sum(run.alive for run in self._runs.values())
        if alive < self._instance_count and self._observed_s < self._timeout_s:
            return ()
        self._settled = True
        return (f"settled with {alive} of {self._instance_count} slices alive",)

    def _host(self, connection: int) -> Host | None:
        place = self._places.get(connection)
        return None if place is None else self._runs[place[0]].joined.get(place[1])


def _turned_away(connection: int, registration: Registration, objection: Objection) -> Outcome:
    stop = Stop(connection, objection.kind, objection.reason)
    return Outcome((stop,), (f"{registration.place} turned away: {objection.reason}",))


def _is_about(order: SliceOrder, run: Run) -> bool:
    return (order.index, order.incarnation) == (run.slice_index, run.incarnation)


def _told(orders: tuple[Stop, ...]) -> str:
    return f"; told {len(orders)} to stop" if orders else ""
