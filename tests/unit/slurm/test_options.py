# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""slurm_options.py: sbatch's command line, and one task inside one slice."""

from pathlib import Path

import pytest

from pathways_slurm.scheduler.base import ArraySpec, SchedulerError
from pathways_slurm.scheduler.slurm_options import SlurmOptions, sbatch_argv, slice_constraint
from pathways_slurm.scheduler.slurm_parse import NodeInfo

SCRIPT = Path("/opt/pathways slurm/scripts/run_worker_slice.sh")


def spec(hosts: int = 2) -> ArraySpec:
    return ArraySpec(
        tag="run-0",
        indices=(5, 2),
        hosts_per_task=hosts,
        argv=("/bin/bash", "worker_host.sh", "a b", ""),
        first_incarnation=7,
        log_dir=Path("/home/ann/100%/logs"),
    )


def test_the_plain_command() -> None:
    assert sbatch_argv(spec(), SlurmOptions(), "", SCRIPT) == (
        "sbatch",
        "--parsable",
        "--job-name=pathways-run-0",
        "--comment=pathways tag=run-0 first=7",
        "--array=2,5",
        "--nodes=2",
        "--ntasks-per-node=1",
        "--exclusive",
        "--mem=0",
        "--requeue",
        "--open-mode=append",
        "--output=/home/ann/100%%/logs/slice-%a/batch.log",
        "--chdir=/",
        "--export=ALL",
        "/opt/pathways slurm/scripts/run_worker_slice.sh",
        "/home/ann/100%/logs",
        "7",
        "/bin/bash",
        "worker_host.sh",
        "a b",
        "",
    )


def test_what_a_cluster_asks_for_comes_before_further_options() -> None:
    options = SlurmOptions(
        partition="tpu",
        account="lab",
        qos="high",
        reservation="mine",
        constraint="not this one",
        time_limit="2-0",
        gres="tpu:4",
        extra_args=("--nice=5", "--mem=100"),
    )
    argv = sbatch_argv(spec(), options, "[a|b]", SCRIPT)
    start = argv.index("--export=ALL") + 1
    assert argv[start : argv.index(str(SCRIPT))] == (
        "--partition=tpu",
        "--account=lab",
        "--qos=high",
        "--reservation=mine",
        "--constraint=[a|b]",
        "--time=2-0",
        "--gres=tpu:4",
        "--nice=5",
        "--mem=100",
    )


def nodes(slices: int, hosts: int, *features: str) -> list[NodeInfo]:
    return [
        NodeInfo(f"n{s}-{h}", "", frozenset({f"slice{s}", "tpu", *features}))
        for s in range(slices)
        for h in range(hosts)
    ]


def switches(slices: int, hosts: int) -> list[frozenset[str]]:
    return [frozenset(f"n{s}-{h}" for h in range(hosts)) for s in range(slices)]


BY_FEATURE = SlurmOptions(partition="tpu", slice_features="slice*")


class TestOneTaskInsideOneSlice:
    def test_slices_of_one_host_need_nothing(self) -> None:
        assert slice_constraint(1, nodes(2, 2), [], SlurmOptions()) == ""
        assert slice_constraint(1, [], [], SlurmOptions(constraint="v6e")) == "v6e"

    def test_a_switch_of_each_slice_is_enough(self) -> None:
        assert slice_constraint(2, nodes(3, 2), switches(3, 2), SlurmOptions()) == ""
        # Nodes of other partitions are under switches too.
        other = frozenset({"cpu0", "cpu1", "cpu2"})
        assert slice_constraint(2, nodes(3, 2), [*switches(3, 2), other], SlurmOptions()) == ""
        assert (
            slice_constraint(2, nodes(3, 2), switches(3, 2), SlurmOptions(constraint="v6e"))
            == "v6e"
        )

    def test_smaller_slices_can_take_no_task(self) -> None:
        mixed = [*switches(1, 4), *switches(3, 2)[1:]]
        assert slice_constraint(4, nodes(3, 4), mixed, SlurmOptions()) == ""

    @pytest.mark.parametrize(
        "above", [[], [frozenset(f"n{s}-{h}" for s in (0, 1) for h in (0, 1))]]
    )
    def test_features_where_switches_do_not_tell_slices_apart(
        self, above: list[frozenset[str]]
    ) -> None:
        assert slice_constraint(2, nodes(2, 2), above, BY_FEATURE) == "[slice0|slice1]"

    def test_features_of_slices_of_another_size_are_left_out(self) -> None:
        cluster = [*nodes(3, 2), NodeInfo("n1-2", "", frozenset({"slice1"}))]
        assert slice_constraint(2, cluster, [], BY_FEATURE) == "[slice0|slice2]"

    def test_features_with_a_constraint(self) -> None:
        options = SlurmOptions(constraint="v6e", slice_features="slice*")
        assert slice_constraint(2, nodes(2, 2), [], options) == "[slice0|slice1]&v6e"

    def test_a_constraint_with_brackets_is_the_users_word(self) -> None:
        options = SlurmOptions(constraint="[rack1|rack2]", slice_features="slice*")
        assert slice_constraint(2, nodes(2, 2), switches(2, 2), options) == "[rack1|rack2]"

    @pytest.mark.parametrize(
        ("above", "options", "words"),
        [
            ([], SlurmOptions(), "default partition; it has no tree topology"),
            ([], SlurmOptions(partition="tpu"), "partition tpu"),
            (
                [frozenset(f"n{s}-{h}" for s in (0, 1) for h in (0, 1))],
                SlurmOptions(),
                "its topology has groups of 4 nodes, where each must be 2",
            ),
            ([], SlurmOptions(slice_features="rack*"), "no node has a feature like 'rack*'"),
            ([], SlurmOptions(slice_features="tpu"), "tpu on 4 nodes"),
        ],
    )
    def test_a_cluster_that_says_nothing_of_slices(
        self, above: list[frozenset[str]], options: SlurmOptions, words: str
    ) -> None:
        with pytest.raises(SchedulerError) as caught:
            slice_constraint(2, nodes(2, 2), above, options)
        assert words in str(caught.value)
        assert "set PATHWAYS_SLURM_SLICE_FEATURES to a pattern" in str(caught.value)

    def test_more_hosts_than_nodes(self) -> None:
        with pytest.raises(SchedulerError, match="it has 4 nodes"):
            slice_constraint(9, nodes(2, 2), switches(2, 2), SlurmOptions())
