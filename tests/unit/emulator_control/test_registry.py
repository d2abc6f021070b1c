# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
import pytest

from pathways_emulator import membership
from pathways_emulator.membership import SliceMember
from pathways_emulator.registration import Registration, StopKind
from pathways_emulator.registry import Outcome, Registry, Stop, Welcome
from pathways_slurm.runtime_files import Notice, Orders, SliceOrder, SliceReport

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


def test_nobody_has_registered_at_first() -> None:
    snapshot = World(slices=3).registry.snapshot(NOW)
    assert not snapshot.settled
    assert [member.index for member in snapshot.slices] == [0, 1, 2]
    assert snapshot.slices[1] == SliceMember(1, 0, False, "no worker has registered")


def test_a_slice_lives_with_its_last_host() -> None:
    world = World(hosts=2)
    world.joined(0, 0)
    assert world.member(0) == SliceMember(0, 0, False, "1 of 2 hosts of incarnation 1 registered")
    world.joined(0, 1)
    assert world.member(0) == SliceMember(0, 1, True)


@pytest.mark.parametrize("how", ["closed", "left"])
def test_one_hosts_end_ends_its_incarnation_for_good(how: str) -> None:
    world = World(hosts=2)
    first, second = world.joined(0, 0), world.joined(0, 1)
    registry = world.registry
    outcome = registry.closed(first) if how == "closed" else registry.leave(first, "SIGTERM")
    assert stops(outcome) == [(second, StopKind.SLICE_ENDED)]
    cause = "ended: connection closed" if how == "closed" else "left: SIGTERM"
    assert world.member(0) == SliceMember(0, 1, False, f"host 0 {cause}")
    for host in range(2):
        connection, refused = world.join(0, host)
        assert stops(refused) == [(connection, StopKind.SLICE_ENDED)]
    assert not world.member(0).alive


def test_a_greater_incarnation_brings_the_slice_back() -> None:
    world = World()
    world.registry.closed(world.joined(0))
    world.joined(0, run=2)
    assert world.member(0) == SliceMember(0, 2, True)


def test_a_host_that_ends_before_the_others_joined_ends_the_incarnation_too() -> None:
    world = World(hosts=2)
    world.registry.closed(world.joined(0, 0))
    connection, outcome = world.join(0, 1)
    assert stops(outcome) == [(connection, StopKind.SLICE_ENDED)]
    assert world.member(0).incarnation == 1


def test_the_end_of_a_host_told_to_stop_is_nothing_new() -> None:
    world = World(hosts=2)
    first, second = world.joined(0, 0), world.joined(0, 1)
    world.registry.closed(first)
    assert world.registry.closed(second) == Outcome()
    assert world.member(0).reason == "host 0 ended: connection closed"


def test_a_newer_incarnation_stops_the_older_one() -> None:
    world = World(hosts=2)
    old = [world.joined(0, host) for host in range(2)]
    _, outcome = world.join(0, 1, run=2)
    assert stops(outcome) == [(connection, StopKind.SUPERSEDED) for connection in old]
    # Known to be over although the new one is not complete yet.
    assert world.member(0) == SliceMember(0, 2, False, "1 of 2 hosts of incarnation 2 registered")
    for connection in old:
        assert world.registry.closed(connection) == Outcome()
    world.joined(0, 0, run=2)
    assert world.member(0) == SliceMember(0, 2, True)


def test_an_older_incarnation_is_turned_away() -> None:
    world = World()
    world.joined(0, run=5)
    connection, outcome = world.join(0, run=4)
    assert stops(outcome) == [(connection, StopKind.SUPERSEDED)]
    assert world.member(0) == SliceMember(0, 5, True)


def test_a_wrong_registration_of_a_newer_incarnation_harms_nobody() -> None:
    world = World()
    world.joined(0)
    connection, outcome = world.join(0, run=2, hosts=3)
    assert stops(outcome) == [(connection, StopKind.REFUSED)]
    assert world.member(0).alive


def test_another_process_for_a_joined_host_is_refused() -> None:
    world = World()
    world.joined(0)
    connection, outcome = world.join(0, uuid="another")
    assert stops(outcome) == [(connection, StopKind.REFUSED)]
    assert world.member(0).alive


def test_hosts_that_disagree_on_their_number_are_refused() -> None:
    world = World(hosts=2)
    world.joined(0, 0)
    connection, outcome = world.join(0, 0, hosts=1)
    assert stops(outcome) == [(connection, StopKind.REFUSED)]


def test_the_same_process_may_come_back_before_its_old_stream_has_ended() -> None:
    world = World()
    old = world.joined(0)
    new = world.joined(0)
    assert world.registry.closed(old) == Outcome()
    assert world.member(0).alive
    world.registry.closed(new)
    assert not world.member(0).alive


@pytest.mark.parametrize(
    ("slice_index", "host", "hosts", "run", "reason"),
    [
        (2, 0, 1, 1, "PATHWAYS_SLICE_INDEX is 2, but valid is 0 to 1"),
        (-1, 0, 1, 1, "PATHWAYS_SLICE_INDEX is -1, but valid is 0 to 1"),
        (0, 2, 2, 1, "PATHWAYS_HOST_INDEX is 2, but valid is 0 to 1"),
        (0, 0, 4, 1, "--instance_type=tpuv6e:2x4 is 1 or 2"),
        (0, 0, 1, 0, "PATHWAYS_INCARNATION is 0, but valid is >= 1"),
    ],
)
def test_a_wrong_registration_is_refused_with_what_is_valid(
    slice_index: int, host: int, hosts: int, run: int, reason: str
) -> None:
    _, outcome = World().join(slice_index, host, run=run, hosts=hosts)
    (order,) = outcome.orders
    assert isinstance(order, Stop)
    assert order.kind is StopKind.REFUSED
    assert reason in order.reason


def test_a_silent_host_is_lost_after_the_timeout_and_its_slice_with_it() -> None:
    world = World(hosts=2)
    silent, heard = world.joined(0, 0), world.joined(0, 1)
    assert not any(outcome.orders for outcome in world.ticks(TIMEOUT_S, heard))
    assert world.member(0).alive
    (outcome,) = world.ticks(world.registry.tick_s, heard)
    told = {(silent, StopKind.SLICE_ENDED), (heard, StopKind.SLICE_ENDED)}
    assert set(stops(outcome)) == told
    assert world.member(0).reason == "host 0 lost: silent for more than 10 s"


def test_heartbeats_keep_a_host() -> None:
    world = World()
    connection = world.joined(0)
    world.ticks(10 * TIMEOUT_S, connection)
    assert world.member(0).alive


def test_time_in_which_the_registry_was_not_ticked_is_no_silence() -> None:
    world = World()
    connection = world.joined(0)
    world.now_s += 100 * TIMEOUT_S
    assert not world.registry.tick(world.now_s).orders
    # What was sent meanwhile is read by and by.
    world.ticks(TIMEOUT_S / 2)
    world.registry.heard(connection)
    world.ticks(TIMEOUT_S)
    assert world.member(0).alive


def test_it_settles_when_everybody_had_the_time_to_come_back() -> None:
    world = World()
    connection = world.joined(0)
    world.ticks(TIMEOUT_S - world.registry.tick_s, connection)
    assert not world.registry.snapshot(NOW).settled
    world.ticks(world.registry.tick_s, connection)
    assert world.registry.snapshot(NOW).settled


def test_it_settles_at_once_when_everybody_is_there() -> None:
    world = World()
    world.joined(0)
    assert not world.registry.snapshot(NOW).settled
    connection = world.joined(1)
    assert world.registry.snapshot(NOW).settled
    world.registry.closed(connection)
    assert world.registry.snapshot(NOW).settled


def test_a_loss_is_told_before_it_has_settled() -> None:
    world = World()
    world.registry.closed(world.joined(0))
    assert not world.registry.snapshot(NOW).settled
    assert world.member(0).incarnation == 1
    assert not world.member(0).alive


def test_an_announced_shutdown_stops_all_and_freezes_the_snapshot() -> None:
    world = World()
    connections = [world.joined(index) for index in range(2)]
    before = world.registry.snapshot(NOW)
    outcome = world.registry.announce_shutdown("down")
    assert stops(outcome) == [(connection, StopKind.SHUTDOWN) for connection in connections]
    for connection in connections:
        assert world.registry.closed(connection) == Outcome()
    late, refused = world.join(0, run=2)
    assert stops(refused) == [(late, StopKind.SHUTDOWN)]
    world.ticks(2 * TIMEOUT_S)
    assert world.registry.snapshot(NOW) == before
    assert world.registry.announce_shutdown("again") == Outcome()


def test_a_notice_is_the_slices_and_leaves_it_alive() -> None:
    world = World(hosts=2)
    connections = [world.joined(0, host) for host in range(2)]
    outcome = world.notice(connections[1], "host 1 got SIGTERM")
    line = "slice 0 (incarnation 1) has 25.0 s left: host 1 got SIGTERM"
    assert outcome == Outcome((), (line,))
    (member, _) = world.registry.snapshot(NOW + 5).slices
    assert member == SliceMember(0, 1, True, notice=membership.Notice("host 1 got SIGTERM", 20.0))
    assert member.notice is not None
    assert member.notice.left_s == 20.0
    notice = Notice("host 1 got SIGTERM", NOW + 25.0)
    assert world.report(0) == SliceReport(0, 1, True, "", notice)


def test_the_first_notice_counts() -> None:
    world = World(hosts=2)
    connections = [world.joined(0, host) for host in range(2)]
    world.notice(connections[0])
    assert world.notice(connections[1], "host 1 got SIGTERM") == Outcome()
    assert world.registry.notice(connections[0], "again", 60.0, NOW) == Outcome()
    assert world.report(0).notice == Notice("host 0 got SIGTERM", NOW + 25.0)


def test_no_time_left_is_not_less_than_none() -> None:
    world = World()
    world.notice(world.joined(0))
    notice = world.registry.snapshot(NOW + 1000).slices[0].notice
    assert notice is not None
    assert notice.left_s == 0.0


def test_a_notice_of_an_older_incarnation_says_nothing_of_the_newer_one() -> None:
    world = World()
    old = world.joined(0)
    world.joined(0, run=2)
    assert world.notice(old) == Outcome()
    assert world.member(0) == SliceMember(0, 2, True)


def test_a_noticed_slice_that_comes_back_is_like_any_other() -> None:
    world = World()
    connection = world.joined(0)
    world.notice(connection)
    world.registry.closed(connection)
    world.joined(0, run=2)
    assert world.member(0).notice is None
    assert world.report(0) == SliceReport(0, 2, True)


def test_a_noticed_slice_that_dies_is_lost_and_its_report_keeps_the_notice() -> None:
    world = World()
    connection = world.joined(0)
    world.notice(connection)
    world.registry.closed(connection)
    reason = "host 0 ended: connection closed"
    assert world.member(0) == SliceMember(0, 1, False, reason)
    notice = Notice("host 0 got SIGTERM", NOW + 25.0)
    assert world.report(0) == SliceReport(0, 1, False, reason, notice)


def test_a_notice_before_all_hosts_came_back_is_told_once_they_have() -> None:
    world = World(hosts=2)
    world.notice(world.joined(0, 0))
    assert world.member(0).notice is None
    assert world.report(0).notice is None
    world.joined(0, 1)
    assert world.member(0).notice is not None
    assert world.report(0).notice is not None


def test_a_notice_of_a_slice_that_was_never_complete_releases_it() -> None:
    world = World(hosts=2)
    connection = world.joined(0, 0)
    world.ticks(2 * TIMEOUT_S, connection)
    assert stops(world.notice(connection)) == [(connection, StopKind.RELEASED)]
    assert world.report(0).released


def test_a_release_ends_a_run_at_once_and_is_no_loss() -> None:
    world = World(hosts=2)
    connections = [world.joined(0, host) for host in range(2)]
    outcome = world.registry.release(0, 1, "its data is saved")
    assert stops(outcome) == [(connection, StopKind.RELEASED) for connection in connections]
    line = "slice 0 (incarnation 1) is released: its data is saved; told 2 to stop"
    assert outcome.log == (line,)
    assert world.member(0) == SliceMember(0, 1, False, "its data is saved")
    released = SliceReport(0, 1, False, "its data is saved", None, released=True)
    assert world.report(0) == released
    assert world.registry.hosts() == ()
    for connection in connections:
        assert world.registry.closed(connection) == Outcome()
    assert world.registry.release(0, 1, "again") == Outcome()
    assert world.report(0) == released


def test_a_host_that_missed_its_release_is_told_again() -> None:
    world = World()
    world.joined(0)
    world.registry.release(0, 1, "its data is saved")
    connection, outcome = world.join(0)
    assert outcome.orders == (Stop(connection, StopKind.RELEASED, "its data is saved"),)


@pytest.mark.parametrize(("index", "incarnation"), [(0, 1), (0, 3), (1, 1), (7, 2), (-1, 2)])
def test_a_release_of_another_run_does_nothing(index: int, incarnation: int) -> None:
    world = World()
    world.joined(0, run=2)
    assert world.registry.release(index, incarnation, "why") == Outcome()
    assert world.member(0).alive


def test_a_release_after_the_end_does_nothing() -> None:
    world = World()
    world.registry.closed(world.joined(0))
    assert world.registry.release(0, 1, "its data is saved") == Outcome()
    assert not world.report(0).released


def test_orders_release_a_run_and_no_other() -> None:
    world = World()
    first, second = world.joined(0), world.joined(1, run=2)
    orders = Orders(released=(SliceOrder(0, 1, "left"), SliceOrder(1, 1, "left")))
    assert stops(world.registry.obey(orders)) == [(first, StopKind.RELEASED)]
    assert world.registry.obey(orders) == Outcome()
    assert world.member(1).alive
    assert world.registry.closed(second).log


def test_an_ordered_release_holds_for_hosts_that_register_later() -> None:
    world = World(hosts=2)
    world.registry.obey(Orders(released=(SliceOrder(0, 1, "left"),)))
    connection, outcome = world.join(0, 0)
    assert outcome.orders == (Stop(connection, StopKind.RELEASED, "left"),)
    assert world.report(0) == SliceReport(0, 1, False, "left", released=True)
    for host in range(2):
        world.joined(0, host, run=2)
    assert world.member(0) == SliceMember(0, 2, True)


def test_an_abandoned_slice_is_so_until_a_greater_incarnation_registers() -> None:
    world = World()
    world.registry.closed(world.joined(0))
    world.registry.obey(Orders(abandoned=(SliceOrder(0, 1, "cancelled"),)))
    assert world.member(0).abandoned == "cancelled"
    assert world.member(1).abandoned == ""
    world.joined(0, run=2)
    assert world.member(0) == SliceMember(0, 2, True)


def test_a_slice_whose_next_run_is_given_up_before_it_came_is_abandoned() -> None:
    world = World()
    world.registry.closed(world.joined(0))
    abandoned = (SliceOrder(0, 2, "cancelled"), SliceOrder(1, 1, "failed"))
    world.registry.obey(Orders(abandoned=abandoned))
    assert [world.member(index).abandoned for index in range(2)] == ["cancelled", "failed"]
    world.registry.obey(Orders())
    assert [world.member(index).abandoned for index in range(2)] == ["", ""]


def test_an_ordered_shutdown_is_one() -> None:
    world = World()
    connection = world.joined(0)
    world.notice(connection)
    assert stops(world.registry.obey(Orders(shutdown="down"))) == [(connection, StopKind.SHUTDOWN)]
    assert world.registry.shutting_down
    report = world.registry.report()
    assert report.shutting_down
    assert report.slices[0].alive
    # Nobody saves anything any more.
    assert world.member(0) == SliceMember(0, 1, True)
    assert world.registry.obey(Orders(shutdown="down")) == Outcome()
    assert world.registry.release(0, 1, "late") == Outcome()


def test_the_report_tells_what_the_snapshot_tells() -> None:
    world = World(hosts=2)
    world.joined(0, 0)
    report = world.registry.report()
    assert not report.settled
    assert report.slices == (
        SliceReport(0, 0, False, "1 of 2 hosts of incarnation 1 registered"),
        SliceReport(1, 0, False, "no worker has registered"),
    )


def test_events_of_unknown_connections_do_nothing() -> None:
    registry = World().registry
    assert registry.notice(99, "why", 25.0, NOW) == Outcome()
    registry.heard(99)
    assert registry.closed(99) == Outcome()
    assert registry.leave(99, "why") == Outcome()


def test_every_transition_is_one_line() -> None:
    world = World(hosts=2)
    lines = [line for host in range(2) for line in world.join(0, host)[1].log]
    lines += world.registry.closed(2).log
    assert lines == [
        "slice 0 host 0 (incarnation 1) joined from 10.0.0.9:29001 (pid 42), 1 of 2 hosts",
        "slice 0 host 1 (incarnation 1) joined from 10.0.0.9:29001 (pid 42), 2 of 2 hosts",
        "slice 0 is alive",
        "slice 0 (incarnation 1) is lost: host 1 ended: connection closed; told 1 to stop",
    ]
