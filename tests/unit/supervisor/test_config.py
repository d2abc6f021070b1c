# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""config.py: defaults, and what is derived."""

from pathlib import Path

import pytest
from tests.unit.supervisor.settings import BOTH_IMAGES, GOOD, faults_of, load

from pathways_slurm.causes import Cause, OnBudget
from pathways_slurm.config import (
    settings_table,
)
from pathways_slurm.scheduler.local_view import slice_node
from pathways_slurm.scheduler.slurm_options import SlurmOptions


def test_defaults() -> None:
    settings = load()
    assert settings.tpu_type == "v6e"
    assert (settings.runtime, settings.container, settings.scheduler) == (
        "emulator",
        "none",
        "local",
    )
    assert (settings.proxy_port, settings.rm_port, settings.worker_port) == (29000, 29001, 29001)
    assert (settings.heartbeat_timeout_s, settings.lease_s, settings.tick_s) == (10, 30, 0.5)
    assert settings.start_timeout_s is None
    assert (settings.restart_budget, settings.restart_window_s) == (5, 600)
    assert (settings.slice_restart_budget, settings.slice_restart_window_s) == (10, 600)
    assert settings.topology.hosts == 2


def test_each_cause_has_the_common_budget_or_one_of_its_own() -> None:
    assert load().budgets == {}
    settings = load(PATHWAYS_BUDGET_CRASH="3/60", PATHWAYS_BUDGET_TIME_LIMIT="100/86400.5")
    assert settings.budgets == {Cause.CRASH: (3, 60.0), Cause.TIME_LIMIT: (100, 86400.5)}
    assert {f"PATHWAYS_BUDGET_{cause.name}" for cause in Cause} == {
        row.variable for row in settings_table() if row.variable.startswith("PATHWAYS_BUDGET_")
    }
    assert load(PATHWAYS_ON_BUDGET="wait").on_budget is OnBudget.WAIT


def test_paths_of_the_default_and_of_a_named_service() -> None:
    assert load().paths.cluster_env == Path("/home/ann/pathways/cluster.env")
    assert load().paths.events == Path("/home/ann/pathways/events.jsonl")
    named = load(PATHWAYS_HOME="/srv/p", PATHWAYS_NAME="blue")
    assert named.paths.cluster_env == Path("/srv/p/services/blue/cluster.env")


def test_the_most_that_is_accepted_is_what_has_addresses_in_the_local_network() -> None:
    network = load(MAX_SLICES="254").local_network
    assert slice_node(network, 253, 253).address == "127.0.254.254"
    for index, host in ((254, 0), (0, 254)):
        with pytest.raises(ValueError, match="254"):
            slice_node(network, index, host)


@pytest.mark.parametrize(
    ("bucket", "scratch"),
    [
        ("my-bucket", "gs://my-bucket/pathways-scratch/shared"),
        ("gs://my.bucket_1/", "gs://my.bucket_1/pathways-scratch/shared"),
        ("/data/x/", "/data/x/pathways-scratch/shared"),
        ("/", "/pathways-scratch/shared"),
        ("~/x", "/home/ann/x/pathways-scratch/shared"),
    ],
)
def test_scratch_location(bucket: str, scratch: str) -> None:
    settings = load(GCS_BUCKET=bucket)
    assert settings.scratch_location == scratch
    assert settings.scratch_dir == (Path(scratch) if scratch.startswith("/") else None)


def test_extra_arguments_are_split_as_a_shell_would() -> None:
    settings = load(PATHWAYS_RM_EXTRA_ARGS="--a=1 '--b=x y' --c")
    assert settings.rm_extra_args == ("--a=1", "--b=x y", "--c")


def test_what_a_cluster_asks_for_becomes_options_of_its_jobs() -> None:
    assert load().slurm_options == SlurmOptions()
    assert load().slurm_timeout_s == 15
    settings = load(
        PATHWAYS_SLURM_PARTITION="tpu,tpu-low",
        PATHWAYS_SLURM_ACCOUNT="lab",
        PATHWAYS_SLURM_QOS="high",
        PATHWAYS_SLURM_RESERVATION="mine",
        PATHWAYS_SLURM_CONSTRAINT="[a|b]",
        PATHWAYS_SLURM_SLICE_FEATURES="slice*",
        PATHWAYS_SLURM_GRES="tpu:4",
        PATHWAYS_SLURM_TIME_LIMIT="2-12:30",
        PATHWAYS_SLURM_EXTRA_ARGS="--nice=5 '--mail-user=a b'",
        PATHWAYS_SERVICE_ADDRESS="10.0.0.1",
    )
    assert settings.slurm_options == SlurmOptions(
        partition="tpu,tpu-low",
        account="lab",
        qos="high",
        reservation="mine",
        constraint="[a|b]",
        slice_features="slice*",
        gres="tpu:4",
        time_limit="2-12:30",
        extra_args=("--nice=5", "--mail-user=a b"),
    )
    assert settings.service_address == "10.0.0.1"


@pytest.mark.parametrize("limit", ["90", "1:30", "36:00:00", "2-0", "2-12:30", "2-12:30:15"])
def test_time_limits_in_every_form_of_sbatch(limit: str) -> None:
    assert load(PATHWAYS_SLURM_TIME_LIMIT=limit).slurm_options.time_limit == limit


@pytest.mark.parametrize("word", ["--array=0", "--job-name=x", "--output=/tmp/x", "--wrap=x"])
def test_options_by_which_tasks_are_found_stay_the_services_own(word: str) -> None:
    faults = faults_of(GOOD | {"PATHWAYS_SLURM_EXTRA_ARGS": f"--nice=1 {word}"})
    assert faults["PATHWAYS_SLURM_EXTRA_ARGS"].problem == (
        f"has the word {word!r}, an option that the service sets itself"
    )


def test_chips_per_host_makes_one_host_of_two() -> None:
    assert load(PATHWAYS_CHIPS_PER_HOST="8").topology.instance_type == "tpuv6e1t:2x4"


def test_an_empty_variable_is_as_good_as_none() -> None:
    assert load(TPU_TYPE="").tpu_type == "v6e"
    assert faults_of(GOOD | {"MIN_SLICES": ""})["MIN_SLICES"].problem == "is not set"


def test_what_runs_in_containers_unless_it_is_said() -> None:
    assert load().container == "none"
    assert load(PATHWAYS_RUNTIME="pathways", **BOTH_IMAGES).container == "enroot"
    assert load(PATHWAYS_CONTAINER="enroot").container == "enroot"


def test_the_table_says_everything_about_each_setting() -> None:
    table = {row.variable: row for row in settings_table()}
    assert all(row.meaning and row.valid for row in table.values())
    required = [variable for variable, row in table.items() if row.default is None]
    assert required == ["SLICE_SHAPE", "MIN_SLICES", "MAX_SLICES", "GCS_BUCKET"]
    assert table["PATHWAYS_TICK_S"].default == "0.5 with the local scheduler, 5 with Slurm"
    assert table["PATHWAYS_HOME"].default == "~/pathways"


def test_settings_can_not_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        load().max_slices = 9
