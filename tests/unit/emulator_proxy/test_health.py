# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What snapshots of membership mean for data, and what arrays become."""

import pytest

from pathways_emulator.membership import Membership, SliceMember
from pathways_emulator.proxy import slice_state
from pathways_emulator.proxy.arrays import Array, ArrayStore, error_array, origin_of
from pathways_emulator.proxy.health import Health
from pathways_emulator.proxy.status import Code, ProxyError, Status

UP = SliceMember(0, 1, True)


def snapshot(*members: SliceMember, settled: bool = True) -> Membership:
    return Membership("tpuv6e:2x2", settled, members)


def after(*snapshots: Membership) -> Health:
    states = slice_state.first_states(snapshots[0], suspends=True, now_s=0.0)
    for membership in snapshots[1:]:
        states = slice_state.next_states(states, membership, suspends=True, now_s=0.0)
    return slice_state.health_of(states)


START = snapshot(UP, SliceMember(1, 5, True))


@pytest.mark.parametrize(
    ("member", "settled", "message"),
    [
        (SliceMember(1, 5, True), True, None),
        (SliceMember(1, 5, False, "host 1 ended"), True, "slice 1: host 1 ended"),
        (SliceMember(1, 5, False, "host 1 ended"), False, "slice 1: host 1 ended"),
        (SliceMember(1, 0, False, "has not registered"), False, None),
        (SliceMember(1, 0, False, "has not registered"), True, "slice 1: has not registered"),
        (SliceMember(1, 6, False, "is starting"), False, "slice 1: is starting"),
        (SliceMember(1, 6, True), True, "incarnation 6"),
        (SliceMember(1, 6, True), False, "incarnation 6"),
        (SliceMember(1, 5, False), True, "slice 1: is not up"),
    ],
)
def test_loss_of_data_written_before_the_snapshot(
    member: SliceMember, settled: bool, message: str | None
) -> None:
    written = after(START).incarnations([0, 1])
    health = after(START, snapshot(UP, member, settled=settled))
    loss = health.loss_of(written)
    if message is None:
        assert loss is None
    else:
        assert loss is not None
        assert loss.code is Code.DATA_LOSS
        assert message in loss.message
    assert health.loss_of(written[:1]) is None


def test_a_slice_that_returns_takes_new_data_and_its_old_data_stays_lost() -> None:
    written = after(START).incarnations([1])
    dead = snapshot(UP, SliceMember(1, 5, False, "gone"))
    health = after(START, dead, snapshot(UP, SliceMember(1, 6, True)))
    assert health.error_of([0, 1]) is None
    assert health.loss_of(written) is not None
    assert health.loss_of(health.incarnations([1])) is None


def ready(_value: object) -> bool:
    return True


def unready(_value: object) -> bool:
    return False


def only_data(value: object) -> bool:
    assert value == "data"
    return True


LOST = after(START, snapshot(UP, SliceMember(1, 5, False, "gone")))
ON_FIRST, ON_SECOND = ((0, 1),), ((1, 5),)


@pytest.mark.parametrize(
    ("is_ready", "fails"), [(ready, False), (unready, True)], ids=["computed", "under way"]
)
def test_a_shard_on_a_good_slice_is_lost_only_while_it_needs_the_lost_one(
    is_ready: type, fails: bool
) -> None:
    array = Array(None, "data", ON_FIRST, ON_FIRST + ON_SECOND)
    array.apply(LOST, is_ready)
    assert (array.error is not None) is fails
    assert (array.value is None) is fails


def test_a_result_needs_what_its_unfinished_sources_need() -> None:
    source = Array(None, "data", ON_SECOND)
    assert origin_of(ON_FIRST, [source], unready) == ON_FIRST + ON_SECOND
    assert origin_of(ON_FIRST, [source], ready) == ON_FIRST
    assert origin_of(ON_SECOND, [source, source], unready) is ON_SECOND


def test_a_result_of_data_that_is_lost_meanwhile_is_lost_with_it() -> None:
    source = Array(None, "data", ON_FIRST + ON_SECOND)
    source.apply(LOST, ready)
    origin = origin_of(ON_FIRST, [source], only_data)
    result = Array(None, "data", ON_FIRST, origin)
    result.apply(LOST, unready)
    assert result.error is source.error is not None


def test_the_store_fails_what_is_lost_before_and_after_it_is_stored() -> None:
    store = ArrayStore(after(START), ready)
    kept, lost, late = (Array(None, "x", on) for on in (ON_FIRST, ON_SECOND, ON_SECOND))
    store.insert([1, 2], [kept, lost])
    store.on_health(LOST)
    store.insert([3], [late])
    assert kept.error is None
    assert kept.value == "x"
    for array in (lost, late):
        assert array.value is None
        assert array.error == Status(Code.DATA_LOSS, "slice 1: gone")
    with pytest.raises(ProxyError, match="unknown array handle 9"):
        store.get_all([1, 9])
    assert store.remove([1, 9]) == [9]
    assert min(store.new_handles(2)) >= 1 << 62


def test_the_first_error_of_an_array_stays() -> None:
    first, second = Status(Code.UNKNOWN, "first"), Status(Code.DATA_LOSS, "second")
    array = error_array(first)
    array.fail(second)
    array.apply(LOST, unready)
    assert array.error is first
