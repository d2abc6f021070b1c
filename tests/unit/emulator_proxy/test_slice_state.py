# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The life of a slice, decided from snapshots of membership."""

import pytest

from pathways_emulator.membership import Membership, Notice, SliceMember
from pathways_emulator.proxy import slice_state
from pathways_emulator.proxy.slice_state import (
    Down,
    Restoring,
    Saving,
    SliceState,
    Suspended,
    Up,
)
from pathways_emulator.proxy.status import Code

NOW_S = 1000.0
NOTICE = Notice("host 0 got SIGTERM", 20.0)

UP = Up(5)
SAVING = Saving(5, NOTICE.reason, NOW_S + 19.0)
SUSPENDED = Suspended(5, 5)
RESTORING = Restoring(5, 6)

ENDED = SliceMember(0, 5, False, "host 0 ended")
NEXT_ENDED = SliceMember(0, 6, False, "host 0 ended")
UNKNOWN = SliceMember(0, 0, False, "has not registered")
STARTING = SliceMember(0, 6, False, "is starting")


def alive(incarnation: int, notice: Notice | None = None, abandoned: str = "") -> SliceMember:
    return SliceMember(0, incarnation, True, notice=notice, abandoned=abandoned)


def after(
    state: SliceState, member: SliceMember, *, settled: bool = True, suspends: bool = True
) -> SliceState:
    membership = Membership("tpuv6e:2x2", settled, (member,))
    [new] = slice_state.next_states([state], membership, suspends=suspends, now_s=NOW_S)
    return new


@pytest.mark.parametrize(
    ("before", "member", "following"),
    [
        (UP, alive(5, NOTICE), SAVING),
        (UP, alive(6, NOTICE), Saving(6, NOTICE.reason, NOW_S + 19.0)),
        (SAVING, alive(5, NOTICE), SAVING),
        (SAVING, alive(5), SAVING),
        (SAVING, alive(6), Up(6)),
        (SUSPENDED, alive(5, NOTICE), SUSPENDED),
        (SUSPENDED, ENDED, SUSPENDED),
        (SUSPENDED, UNKNOWN, SUSPENDED),
        (SUSPENDED, STARTING, SUSPENDED),
        (SUSPENDED, alive(6), RESTORING),
        (SUSPENDED, alive(6, NOTICE), Suspended(5, 6, release_due=True)),
        (Suspended(5, 6), alive(6, NOTICE), Suspended(5, 6)),
        (Suspended(5, 6), alive(6), Suspended(5, 6)),
        (Suspended(5, 6), alive(7), Restoring(5, 7)),
        (RESTORING, alive(6), RESTORING),
        (RESTORING, alive(7), Restoring(5, 7)),
        (RESTORING, alive(6, NOTICE), Suspended(5, 6, release_due=True)),
        (RESTORING, NEXT_ENDED, SUSPENDED),
        (RESTORING, UNKNOWN, SUSPENDED),
    ],
)
def test_a_slice_goes_through_its_states(
    before: SliceState, member: SliceMember, following: SliceState
) -> None:
    new = after(before, member)
    assert new == following
    assert (new is before) is (new == before)


@pytest.mark.parametrize(
    ("before", "member", "reason"),
    [
        (UP, ENDED, "host 0 ended"),
        (SAVING, ENDED, "host 0 ended; its data was not saved before it ended"),
        (SAVING, UNKNOWN, "has not registered; its data was not saved before it ended"),
        (
            SAVING,
            alive(5, NOTICE, "cancelled by a user"),
            "it was suspended and will not return: cancelled by a user",
        ),
        (
            SUSPENDED,
            SliceMember(0, 5, False, "released", abandoned="failed 3 times"),
            "it was suspended and will not return: failed 3 times",
        ),
        (
            RESTORING,
            SliceMember(0, 6, False, "ended", abandoned="failed 3 times"),
            "it was suspended and will not return: failed 3 times",
        ),
    ],
)
def test_a_slice_is_lost_with_the_reason(
    before: SliceState, member: SliceMember, reason: str
) -> None:
    new = after(before, member)
    assert isinstance(new, Down)
    assert new.error.message == f"slice 0: {reason}"
    # Whoever is still alive is told that nothing keeps it.
    assert new.release_due is member.alive


@pytest.mark.parametrize("before", [UP, SAVING, SUSPENDED, RESTORING])
def test_a_slice_that_is_missing_from_an_unsettled_snapshot_is_kept(before: SliceState) -> None:
    assert after(before, UNKNOWN, settled=False) is before


def test_nothing_happens_at_a_notice_if_slices_are_not_suspended() -> None:
    assert after(UP, alive(5, NOTICE), suspends=False) is UP
    assert isinstance(after(UP, ENDED, suspends=False), Down)


def test_what_was_given_up_alive_holds_no_data_until_a_greater_incarnation() -> None:
    given_up = slice_state.given_up(SAVING, 0, "the disk is full")
    assert slice_state.asks_for_work(given_up)
    assert isinstance(given_up, Down)
    assert given_up.error.message == (
        "slice 0: host 0 got SIGTERM, and its data could not be saved: the disk is full"
    )
    for member in (alive(5, NOTICE), alive(5), ENDED, UNKNOWN):
        assert after(given_up, member) is given_up
    assert after(given_up, alive(6)) == Up(6)
    assert not slice_state.asks_for_work(slice_state.released(given_up))


def test_what_is_saved_is_released_and_held() -> None:
    suspended = slice_state.saved(SAVING, 0, files=1)
    assert suspended == Suspended(5, 5, release_due=True)
    assert slice_state.released(suspended) == SUSPENDED
    for state in (SAVING, suspended, RESTORING):
        health = slice_state.health_of([state]).for_owner_of([0])
        assert health.held == {0}
        assert health.loss_of([(0, 5)]) is None


def test_a_suspended_slice_is_lost_to_whoever_has_nothing_on_it() -> None:
    # Who has, shows when computations have ended.
    assert slice_state.health_of([SAVING]).for_owner_of([]).held == {0}
    for state in (SUSPENDED, Suspended(5, 6, release_due=True), RESTORING):
        health = slice_state.health_of([state]).for_owner_of([])
        assert not health.held
        error = health.error_of([0])
        assert error is not None
        assert error.code is Code.DATA_LOSS
        assert error.message == "slice 0: it is suspended, and nothing of this program is on it"
    back = slice_state.health_of([UP])
    assert back.for_owner_of([]) is back


def test_a_slice_with_nothing_to_save_is_gone_and_its_next_run_is_up() -> None:
    gone = slice_state.saved(SAVING, 0, files=0)
    assert isinstance(gone, Down)
    message = "slice 0: host 0 got SIGTERM, and there was nothing on it to be saved"
    assert gone.error.message == slice_state.describe(0, gone) == message
    assert slice_state.kept(gone) is None
    assert slice_state.asks_for_work(gone)
    for member in (alive(5, NOTICE), ENDED, UNKNOWN):
        assert after(gone, member) is gone
    assert not slice_state.asks_for_work(slice_state.released(gone))
    assert after(gone, alive(6)) == Up(6)
    assert isinstance(after(gone, alive(6, NOTICE)), Saving)


def test_only_slices_that_had_data_are_lost() -> None:
    [never_up] = slice_state.first_states(
        Membership("tpuv6e:2x2", True, (UNKNOWN,)), suspends=True, now_s=NOW_S
    )
    empty = slice_state.saved(SAVING, 0, files=0)
    for state in (never_up, empty, after(empty, STARTING), UP, SAVING, SUSPENDED, RESTORING):
        assert slice_state.all_lost([state]) == frozenset()
    killed = after(UP, ENDED)
    for state in (killed, after(killed, STARTING), slice_state.given_up(SAVING, 0, "no space")):
        assert slice_state.all_lost([empty, state]) == {1}


def test_data_of_the_run_before_is_lost_when_a_newer_one_took_its_place_unsaved() -> None:
    health = slice_state.health_of([after(SAVING, alive(6))])
    loss = health.loss_of([(0, 5)])
    assert loss is not None
    assert "incarnation 6" in loss.message


def test_a_session_is_kept_unless_it_has_state_beside_its_arrays() -> None:
    assert slice_state.why_not_kept(set()) is None
    assert slice_state.why_not_kept({"colocated Python", "a checkpoint in flight"}) == (
        "the session uses a checkpoint in flight, colocated Python, whose state can't be saved"
    )


@pytest.mark.parametrize(
    ("before", "now", "limit", "too_many"),
    [
        ([], [0], 1, False),
        ([], [0], 0, True),
        ([0], [0, 1], 1, True),
        ([0, 1], [0, 1], 1, False),  # as many as before: a session that opened since saw it so
        ([0, 1, 2], [0, 1], 1, False),
        ([0, 1], [1, 2], 1, True),
    ],
)
def test_one_loss_too_many_ends_sessions(
    before: list[int], now: list[int], limit: int, too_many: bool
) -> None:
    assert slice_state.too_many_lost(before, now, limit) is too_many
