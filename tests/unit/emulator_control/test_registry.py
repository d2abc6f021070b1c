# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Who takes part: hosts come, fall silent, end, and are replaced."""

import pytest
from tests.unit.emulator_control.world import NOW, TIMEOUT_S, World, stops

from pathways_emulator.membership import SliceMember
from pathways_emulator.registration import StopKind
from pathways_emulator.registry import Outcome, Stop
from pathways_slurm.runtime_files import EndKind, FirstEnd, SliceReport


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


def test_the_report_tells_what_the_snapshot_tells() -> None:
    world = World(hosts=2)
    world.joined(0, 0)
    report = world.registry.report()
    assert not report.settled
    assert report.slices == (
        SliceReport(0, 0, False, "1 of 2 hosts of incarnation 1 registered"),
        SliceReport(1, 0, False, "no worker has registered"),
    )


@pytest.mark.parametrize("kind", EndKind)
def test_the_report_names_the_host_that_ended_a_run_and_how(kind: EndKind) -> None:
    world = World(hosts=2)
    first, second = (world.joined(0, host) for host in range(2))
    match kind:
        case EndKind.BROKEN:
            world.registry.closed(second)
        case EndKind.LEFT:
            world.registry.leave(second, "SIGINT")
        case EndKind.SILENT:
            world.ticks(2 * TIMEOUT_S, first)
    world.registry.leave(first, "it follows")
    assert world.report(0).end == FirstEnd(1, kind)
    world.joined(0, 0, run=2)
    assert world.report(0).end is None


def test_who_leaves_a_run_that_was_never_complete_has_not_ended_it() -> None:
    world = World(hosts=2)
    world.registry.leave(world.joined(0, 0), "SIGTERM, as the other host has failed")
    assert world.report(0).end is None


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
