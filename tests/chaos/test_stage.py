# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What an administrator makes good during a campaign, by what sinfo says."""

from tests.chaos.stage import DRAINED, Ailing, ailing


def _row(node: str, state: str, used: str = "tpu:v6e:0(IDX:N/A)", why: str = "none") -> str:
    return f"{node:<64}|{state:<32}|{used:<64}|{why:<99}|"


def test_nodes_that_are_well_need_nothing() -> None:
    rows = [
        _row("cpu0", "mixed", "(null)"),
        _row("tpu-0-0", "allocated", "tpu:v6e:4(IDX:0-3)"),
        _row("tpu-0-1", "idle"),
        _row("tpu-1-0", "powered_down"),
    ]
    assert ailing("\n".join(rows)) == Ailing()


def test_what_slurm_has_drained_is_told_from_what_a_fault_has() -> None:
    rows = [
        _row("tpu-0-0", "drained", why="Duplicate jobid"),
        _row("tpu-0-1", "draining", "tpu:v6e:4(IDX:0-3)", "Kill task failed"),
        _row("tpu-1-0", "drained", why=DRAINED),
    ]
    assert ailing("\n".join(rows)) == Ailing(drained=frozenset({"tpu-0-0", "tpu-0-1"}))


def test_tpus_that_stay_taken_on_an_idle_node_are_found() -> None:
    # A node has a line for each of its partitions.
    rows = [_row("tpu-0-0", "idle", "tpu:v6e:4")] * 2
    rows += [_row("tpu-0-1", "idle", "tpu:v6e:4(IDX:0-3)"), _row("tpu-1-0", "idle", "tpu:v6e:0")]
    rows += [_row("tpu-1-1", "idle~", "tpu:v6e:4")]
    assert ailing("\n".join(rows)) == Ailing(taken=frozenset({"tpu-0-0", "tpu-0-1", "tpu-1-1"}))


def test_nodes_that_slurm_has_given_up_are_found() -> None:
    rows = [
        _row("tpu-0-0", "down~", why="ResumeTimeout reached"),
        _row("tpu-0-1", "down*", why="Not responding"),
        _row("tpu-1-0", "powering_down"),
    ]
    assert ailing("\n".join(rows)) == Ailing(down=frozenset({"tpu-0-0", "tpu-0-1"}))
