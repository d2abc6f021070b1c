# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
from pathways_emulator.lease import Lease


def test_it_runs_out_when_it_is_not_renewed() -> None:
    lease = Lease(duration_s=30.0, renewed_s=100.0)
    assert lease.left_s(110.0) == 20.0
    assert lease.left_s(131.0) < 0


def test_it_counts_from_the_sending_of_what_was_answered() -> None:
    lease = Lease(duration_s=30.0, renewed_s=100.0)
    lease.renew(sent_s=105.0)
    # The answer arrived much later, after the process had been stopped.
    assert lease.left_s(140.0) < 0


def test_a_late_answer_does_not_shorten_it() -> None:
    lease = Lease(duration_s=30.0, renewed_s=100.0)
    lease.renew(sent_s=120.0)
    lease.renew(sent_s=110.0)
    assert lease.left_s(120.0) == 30.0
