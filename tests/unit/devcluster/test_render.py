# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The cluster's configuration, to the letter."""

import dataclasses
import subprocess
from pathlib import Path
from typing import Any

import pytest
from slurm.devcluster.options import Options
from slurm.devcluster.render import (
    Layout,
    directories,
    files,
    gres_conf,
    hosts,
    power_program,
    slurm_conf,
    task_prolog,
    topology_conf,
)

GOLDEN = Path(__file__).with_name("golden")


def layout(version: tuple[int, int] = (22, 5), **options: Any) -> Layout:
    return Layout(
        options=Options(Path("/tmp/dev"), **options),
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


def of_namespaces() -> Layout:
    options = Options(Path("/tmp/dev"), slices=1, hosts_per_slice=1, namespaces=True)
    return dataclasses.replace(
        layout(), options=options, network="10.203.7.0/24", controller_port=6817, user="root"
    )


def test_machines_find_slurmctld_and_each_other_by_name_on_one_network() -> None:
    text = slurm_conf(of_namespaces())
    assert "SlurmctldHost=controller(10.203.7.1)\nSlurmctldPort=6817\n" in text
    assert "CommunicationParameters=NoCtldInAddrAny\n" in text
    assert "NodeName=tpu-0-0 NodeHostname=tpu-0-0 NodeAddr=10.203.7.3 Port=6818 " in text
    assert hosts(of_namespaces()) == (
        "127.0.0.1 localhost\n10.203.7.1 controller\n10.203.7.2 cpu0\n10.203.7.3 tpu-0-0\n"
    )


def test_a_cluster_for_all_users_takes_no_jobs_of_root() -> None:
    assert "DisableRootJobs=YES\n" in slurm_conf(of_namespaces())
    assert "DisableRootJobs" not in slurm_conf(layout())


def test_a_cluster_for_all_users_shows_them_what_they_need_and_no_more() -> None:
    modes = {file.path: file.mode for file in files(of_namespaces())}
    private = {"power/suspend", "power/resume", "power/resume_fail"}
    assert {path for path, mode in modes.items() if mode == 0o700} == private
    assert {path for path, mode in modes.items() if mode == 0o755} == {"task_prolog"}
    assert {mode for path, mode in modes.items() if path not in private} == {0o644, 0o755}
    assert dict(directories(of_namespaces())) == {
        **dict.fromkeys(("", "munge", "nodes", "nodes/cpu0", "nodes/tpu-0-0"), 0o711),
        **dict.fromkeys(("power", "controller", "controller/state"), 0o700),
        **dict.fromkeys(("nodes/cpu0/spool", "nodes/tpu-0-0/spool"), 0o755),
    }
    assert {mode for _, mode in directories(layout())} == {0o700}


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
