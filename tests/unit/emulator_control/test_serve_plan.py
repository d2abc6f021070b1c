# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
import importlib.metadata
import os
from pathlib import Path

import pytest

from pathways_emulator import env_file, flags, serve_plan, settings, worker_environment
from pathways_emulator.address import Address
from pathways_slurm import cluster_env

GOOD = {
    "slices": "2",
    "slice-shape": "2x4",
    "tpu-type": "v6e",
    "port": "29000",
    "network": "127.62.0.0/16",
}


def faults_of(**changes: str) -> list[str]:
    faults: list[str] = []
    options = {**GOOD, **{name.replace("_", "-"): text for name, text in changes.items()}}
    assert (serve_plan.make(options, {}, faults) is None) == bool(faults)
    return faults


def test_every_component_accepts_what_it_is_given() -> None:
    faults: list[str] = []
    plan = serve_plan.make(GOOD, {}, faults)
    assert plan is not None
    flags.read_server(plan.manager.argv[3:], faults)
    flags.read_proxy(plan.proxy.argv[3:], faults)
    for worker in plan.workers:
        flags.read_server(worker.argv[3:], faults)
        place = worker_environment.read(worker.environment, faults)
        assert (place.slice_index, place.host_index) == (worker.slice_index, worker.host_index)
        assert place.hosts == 2
    assert not faults


def test_addresses_leave_the_ports_alone() -> None:
    plan = serve_plan.make(GOOD, {}, [])
    assert plan is not None
    assert plan.manager.address == Address("127.62.0.1", 29001)
    assert plan.proxy.address == Address("127.62.0.1", 29000)
    assert [str(worker.address) for worker in plan.workers] == [
        "127.62.1.1:29001",
        "127.62.1.2:29001",
        "127.62.2.1:29001",
        "127.62.2.2:29001",
    ]


def test_the_variables_of_a_program() -> None:
    plan = serve_plan.make({**GOOD, "port": "29500"}, {}, [])
    assert plan is not None
    assert plan.variables == {
        "PATHWAYS_RUN_ID": f"emulator-{os.getpid()}",
        "PATHWAYS_NAME": "emulator",
        "PATHWAYS_MIN_SLICES": "2",
        "PATHWAYS_JAX_VERSION": importlib.metadata.version("jaxlib"),
        "JAX_PLATFORMS": "proxy",
        "JAX_BACKEND_TARGET": "grpc://127.62.0.1:29500",
        "IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS": "true",
        "PATHWAYS_TPU_TYPE": "v6e",
        "PATHWAYS_SLICE_SHAPE": "2x4",
        "PATHWAYS_MAX_SLICES": "2",
        "PATHWAYS_RM_ADDRESS": "127.62.0.1:29001",
        "PATHWAYS_CONTROL_SOCKET": str(plan.control_socket),
    }


def test_each_component_gets_what_notices_need() -> None:
    plan = serve_plan.make({**GOOD, "on-notice": "forward", "notice-seconds": "2.5"}, {}, [])
    assert plan is not None
    assert plan.on_notice == "forward"
    faults: list[str] = []
    assert plan.manager.environment["PATHWAYS_REPORT_FILE"] == str(plan.report_file)
    assert settings.read(plan.proxy.environment, faults).on_notice == "forward"
    for worker in plan.workers:
        assert settings.read(worker.environment, faults).notice_s == 2.5
    assert not faults


def test_by_default_a_slice_under_notice_is_suspended_within_25_seconds() -> None:
    plan = serve_plan.make(GOOD, {}, [])
    assert plan is not None
    assert plan.on_notice == "suspend"
    faults: list[str] = []
    assert settings.read(plan.proxy.environment, faults).on_notice == "suspend"
    assert settings.read(plan.workers[0].environment, faults).notice_s == 25.0
    assert not faults


def test_the_files_of_a_run_are_in_a_directory_of_its_own() -> None:
    first, second = serve_plan.make(GOOD, {}, []), serve_plan.make(GOOD, {}, [])
    assert first is not None
    assert second is not None
    assert first.directory != second.directory
    for path in (first.scratch, first.report_file, first.control_socket):
        assert path.parent == first.directory
    for component in (first.manager, first.proxy, *first.workers):
        assert f"--gcs_scratch_location={first.scratch}" in component.argv


def test_what_reads_a_cluster_env_reads_the_env_file(tmp_path: Path) -> None:
    plan = serve_plan.make(GOOD, {}, [])
    assert plan is not None
    path = tmp_path / "emulator.env"
    env_file.write(path, plan.variables, "process 1 token")
    found = cluster_env.read(path)
    # Of what a service's file has not, nothing is in the way.
    ours = {"PATHWAYS_CONTROL_SOCKET"}
    assert found.variables() == {k: v for k, v in plan.variables.items() if k not in ours}
    assert env_file.read(path) == plan.variables


def test_stale_variables_are_not_inherited() -> None:
    stale = {
        "JAX_PLATFORMS": "proxy",
        "JAX_BACKEND_TARGET": "grpc://elsewhere:1",
        "MEGASCALE_PORT": "1",
        "TPU_NAME": "old",
        "PATHWAYS_REPORT_FILE": "/of/another/report.json",
        "PATHWAYS_ORDERS_FILE": "/of/another/orders.json",
        "PATHWAYS_CONTROL_SOCKET": "/of/another/control.sock",
        "HOME": "/home/me",
        "PATHWAYS_LEASE_S": "3",
    }
    plan = serve_plan.make(GOOD, stale, [])
    assert plan is not None
    for component in (plan.manager, plan.proxy, *plan.workers):
        values = component.environment
        assert values.get("HOME") == "/home/me"
        assert values.get("PATHWAYS_LEASE_S") == "3"
        assert not values.keys() & {"JAX_PLATFORMS", "JAX_BACKEND_TARGET", "TPU_NAME"}
        assert "MEGASCALE_PORT" not in values
        assert not [name for name, value in values.items() if value.startswith("/of/another/")]


def test_all_faults_come_at_once(tmp_path: Path) -> None:
    faults = faults_of(
        slices="0",
        slice_shape="2x3",
        port="70000",
        network="10.0.0.0/16",
        env_file=str(tmp_path / "missing" / "file"),
        on_notice="ignore",
        notice_seconds="-1",
    )
    assert [fault.split(":")[0] for fault in faults] == [
        "--slices",
        "--port",
        "--network",
        "--env-file",
        "--on-notice",
        "--notice-seconds",
        "--slice-shape",
    ]


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"slices": "255"}, "--slices: '255' is not valid: expected an integer, from 1 to 254"),
        ({"slices": "many"}, "--slices: 'many' is not valid"),
        ({"slices": ""}, "--slices: empty; for example --slices 3"),
        ({"port": "29001"}, "--port: 29001 is the resource manager's"),
        ({"network": "127.0.0.0/8"}, "expected a network of 127.0.0.0/8 of the form 127.N.0.0/16"),
        ({"network": "127.0.0.1/16"}, "has host bits set"),
        ({"tpu_type": "v9"}, "unknown TPU type 'v9'"),
        ({"tpu_type": "v5p", "slice_shape": "16x20x28"}, "has 2240 hosts; at most 254 fit"),
    ],
)
def test_a_faulty_option_is_told(changes: dict[str, str], fault: str) -> None:
    faults = faults_of(**changes)
    assert len(faults) == 1
    assert fault in faults[0]


def test_a_file_of_somebody_else_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / ".bashrc"
    path.write_text("alias ll='ls -l'\n")
    (fault,) = faults_of(env_file=str(path))
    assert "the file exists and is not of this command" in fault
    path.unlink()
    env_file.write(path, {}, "process 1 abc")
    assert faults_of(env_file=str(path)) == []
