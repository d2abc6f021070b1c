# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The cluster's configuration, to the letter."""

import subprocess
from pathlib import Path

import pytest
from slurm.devcluster.options import Options
from slurm.devcluster.render import (
    Layout,
    files,
    gres_conf,
    power_program,
    slurm_conf,
    task_prolog,
    topology_conf,
)

GOLDEN = Path(__file__).with_name("golden")


def layout(version: tuple[int, int] = (22, 5), **options: object) -> Layout:
    return Layout(
        options=Options(Path("/tmp/dev"), **options),  # type: ignore[arg-type] # the test's own
        network="127.20.0.0/16",
        controller_port=11420,
        user="someone",
        version=version,
        python=Path("/opt/python 3/bin/python"),
        checkout=Path("/home/some one/checkout"),
    )


def test_slurm_conf() -> None:
    text = slurm_conf(
        layout(
            slices=2, cpu_nodes=2, cred_expire_s=7, grace_time_s=6, kill_wait_s=4, tpu_type="v5p"
        )
    )
    assert text == (GOLDEN / "slurm.conf").read_text()


def test_gres_conf() -> None:
    assert gres_conf(layout(slices=1, hosts_per_slice=2, chips_per_host=8)) == (
        "NodeName=tpu-0-0 Name=tpu Type=v6e Count=8\nNodeName=tpu-0-1 Name=tpu Type=v6e Count=8\n"
    )


def test_a_job_can_not_span_slices_unless_a_switch_connects_them() -> None:
    without = "SwitchName=cpu Nodes=cpu0\nSwitchName=slice0 Nodes=tpu-0-0,tpu-0-1\n"
    assert topology_conf(layout(slices=1)) == without
    assert topology_conf(layout(slices=1, root_switch=True)) == (
        without + "SwitchName=root Switches=cpu,slice0\n"
    )


@pytest.mark.parametrize(
    ("version", "wanted"),
    [((22, 5), False), ((23, 11), False), ((24, 5), True), ((24, 11), True), ((26, 5), True)],
)
def test_cgroups_are_disabled_where_that_word_is_known(
    version: tuple[int, int], wanted: bool
) -> None:
    texts = {file.path: file.text for file in files(layout(version))}
    assert texts.get("cgroup.conf") == ("CgroupPlugin=disabled\n" if wanted else None)


def test_only_programs_are_executable_and_nothing_is_for_others() -> None:
    modes = {file.path: file.mode for file in files(layout())}
    programs = {"task_prolog", "power/suspend", "power/resume", "power/resume_fail"}
    assert {path for path, mode in modes.items() if mode == 0o700} == programs
    assert {mode for path, mode in modes.items() if path not in programs} == {0o600}


def test_the_task_prolog_marks_a_task() -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", task_prolog(layout())],
        env={"SLURMD_NODENAME": "tpu-0-1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "export DEVCLUSTER_DIR=/tmp/dev\nexport DEVCLUSTER_NODE=tpu-0-1\n"


def test_power_programs_leave_slurms_streams_and_quote_paths() -> None:
    text = power_program(layout(), "off")
    subprocess.run(["bash", "-n", "-c", text], check=True)
    assert "exec </dev/null >>/tmp/dev/power/log 2>&1\n" in text
    assert "PYTHONPATH='/home/some one/checkout'" in text
    assert "exec '/opt/python 3/bin/python' -P -m slurm.devcluster.power off" in text
