# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What the registry says of losses, and what the proxy makes of it, around a restart of the RM."""

from pathways_emulator.membership import Membership, SliceMember
from pathways_emulator.proxy import slice_state
from pathways_emulator.proxy.slice_state import Down, SliceState
from pathways_emulator.registration import Registration
from pathways_emulator.registry import Registry

NOW = 1_800_000_000.0


def registry_of_two_hosts() -> Registry:
    return Registry(
        instance_type="tpuv6e:2x4",
        instance_count=2,
        valid_hosts=frozenset({2}),
        heartbeat_timeout_s=10.0,
        now_s=0.0,
    )


def join(registry: Registry, connection: int, host: int) -> None:
    registry.register(connection, Registration(0, host, 2, 1, f"uuid-{host}", "a:1", 1))


def running() -> tuple[SliceState, ...]:
    slices = (SliceMember(0, 1, True), SliceMember(1, 0, False, "not yet"))
    membership = Membership("tpuv6e:2x4", True, slices)
    return slice_state.first_states(membership, suspends=True, now_s=0.0)


def after(states: tuple[SliceState, ...], membership: Membership) -> tuple[SliceState, ...]:
    return slice_state.next_states(states, membership, suspends=True, now_s=0.0)


def is_lost(states: tuple[SliceState, ...]) -> bool:
    return isinstance(states[0], Down)


def test_a_slice_that_is_coming_back_to_a_new_resource_manager_is_kept() -> None:
    registry = registry_of_two_hosts()
    states = after(running(), registry.snapshot(NOW))
    assert not is_lost(states)
    join(registry, 1, 0)
    states = after(states, registry.snapshot(NOW))
    assert not is_lost(states)
    join(registry, 2, 1)
    states = after(states, registry.snapshot(NOW))
    assert not is_lost(states)


def test_a_slice_that_ends_before_the_snapshot_is_settled_is_lost_at_once() -> None:
    registry = registry_of_two_hosts()
    join(registry, 1, 0)
    join(registry, 2, 1)
    registry.closed(2)
    assert not registry.snapshot(NOW).settled
    assert is_lost(after(running(), registry.snapshot(NOW)))


def test_half_a_slice_that_ends_before_the_snapshot_is_settled_is_lost_at_once() -> None:
    registry = registry_of_two_hosts()
    join(registry, 1, 0)
    registry.closed(1)
    assert is_lost(after(running(), registry.snapshot(NOW)))


def test_a_slice_that_does_not_come_back_is_lost_when_settled() -> None:
    registry = registry_of_two_hosts()
    for second in range(12):
        registry.tick(float(second))
    assert is_lost(after(running(), registry.snapshot(NOW)))
