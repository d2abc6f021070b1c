# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Slices that are about to go, are let go, or will not come back."""

import pytest
from tests.unit.emulator_control.world import NOW, TIMEOUT_S, World, stops

from pathways_emulator import membership
from pathways_emulator.membership import SliceMember
from pathways_emulator.registration import StopKind
from pathways_emulator.registry import Outcome, Stop
from pathways_slurm.runtime_files import EndKind, FirstEnd, Notice, Orders, SliceOrder, SliceReport


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
    end = FirstEnd(0, EndKind.BROKEN)
    assert world.report(0) == SliceReport(0, 1, False, reason, notice, end=end)


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
