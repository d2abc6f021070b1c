# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""preflight.py on real directories and ports, in the network 127.41.0.0/16."""

import socket
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from pathways_slurm import containers, emulator_image
from pathways_slurm.config import Settings, SettingsError, load_settings
from pathways_slurm.preflight import load_checked_settings, preflight

NETWORK = "127.41.0.0/16"


def environ(home: Path, **changes: str) -> dict[str, str]:
    return {
        "SLICE_SHAPE": "2x4",
        "MIN_SLICES": "1",
        "MAX_SLICES": "2",
        "GCS_BUCKET": "bucket",
        "PATHWAYS_HOME": str(home),
        "PATHWAYS_LOCAL_NETWORK": NETWORK,
        **changes,
    }


def load(home: Path, **changes: str) -> Settings:
    return load_settings(environ(home, **changes))


def listener(address: str, port: int = 0) -> socket.socket:
    """A socket that listens as gRPC's servers do."""
    server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    server.bind((address, port))
    server.listen()
    return server


def test_nothing_is_wrong_and_nothing_is_left_behind(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    new = load(tmp_path / "new" / "home", PATHWAYS_NAME="blue", GCS_BUCKET=f"{tmp_path}/scratch")
    assert preflight(new) == []
    assert preflight(load(tmp_path)) == []
    assert list(tmp_path.iterdir()) == []
    assert tmp_path.stat().st_mode & 0o777 == 0o755


def test_directories_that_can_not_be_had(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    faults = preflight(load(file / "home", GCS_BUCKET=str(file)))
    assert {fault.variable: fault.value for fault in faults} == {
        "PATHWAYS_HOME": str(file / "home"),
        "GCS_BUCKET": str(file),
    }
    assert {fault.problem for fault in faults} == {
        f"can't be used: nothing can be created in {file}: Not a directory"
    }


def test_a_discovery_file_that_is_a_directory(tmp_path: Path) -> None:
    (tmp_path / "cluster.env").mkdir()
    (fault,) = preflight(load(tmp_path))
    assert fault.variable == "PATHWAYS_HOME"
    assert f"{tmp_path}/cluster.env is a directory" in fault.problem


def test_a_home_where_nothing_can_be_created() -> None:
    # /proc refuses new files to everybody, root included.
    [fault] = preflight(load(Path("/proc/self/home")))
    assert (fault.variable, fault.value) == ("PATHWAYS_HOME", "/proc/self/home")
    assert fault.problem.startswith("can't be used: nothing can be created in /proc/self: ")


def test_faults_of_settings_and_of_the_machine_come_in_one_go(tmp_path: Path) -> None:
    with listener("127.41.0.1") as server:
        port = str(server.getsockname()[1])
        wrong = environ(
            Path("/proc/self/home"), MIN_SLICES="3", PATHWAYS_RM_PORT=port, SLICE_SHAPE=""
        )
        with pytest.raises(SettingsError) as caught:
            load_checked_settings(wrong)
    assert [fault.variable for fault in caught.value.faults] == [
        "SLICE_SHAPE",
        "MIN_SLICES",
        "PATHWAYS_HOME",
        "PATHWAYS_RM_PORT",
    ]
    right = environ(tmp_path)
    assert load_checked_settings(right) == load_settings(right)


def test_what_depends_on_a_setting_at_fault_is_not_checked(tmp_path: Path) -> None:
    with listener("127.41.0.1") as rm, listener("127.41.1.1") as worker:
        settings = load(
            tmp_path,
            PATHWAYS_RM_PORT=str(rm.getsockname()[1]),
            PATHWAYS_WORKER_PORT=str(worker.getsockname()[1]),
        )
        assert [fault.variable for fault in preflight(settings, {"SLICE_SHAPE"})] == [
            "PATHWAYS_RM_PORT"
        ]
        assert preflight(settings, {"PATHWAYS_LOCAL_NETWORK"}) == []


def test_ports_that_are_taken(tmp_path: Path) -> None:
    with (
        listener("127.41.0.1") as rm,
        listener("127.41.0.1") as proxy,
        listener("127.41.2.1") as worker,
    ):
        ports = [server.getsockname()[1] for server in (proxy, rm, worker)]
        changes = dict(
            zip(
                ("PATHWAYS_PROXY_PORT", "PATHWAYS_RM_PORT", "PATHWAYS_WORKER_PORT"),
                map(str, ports),
                strict=True,
            )
        )
        faults = preflight(load(tmp_path, **changes))
    assert {fault.variable: fault.value for fault in faults} == changes
    assert [fault.problem.split(",")[0] for fault in faults] == [
        "is in use on 127.41.0.1",
        "is in use on 127.41.0.1",
        "is in use on 127.41.2.1",
    ]
    assert preflight(load(tmp_path, **changes)) == []


def test_a_connection_that_lingers_is_not_in_the_way(tmp_path: Path) -> None:
    with listener("127.41.0.1") as server:
        address = server.getsockname()
        with socket.create_connection(address) as client:
            connection, _ = server.accept()
            # The side that closes first is the one whose port lingers in TIME_WAIT.
            connection.close()
            assert client.recv(1) == b""
    assert preflight(load(tmp_path, PATHWAYS_RM_PORT=str(address[1]))) == []


def test_programs_that_are_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    faults = preflight(load(tmp_path))
    assert [fault.variable for fault in faults] == ["PATHWAYS_RUNTIME"] * 2
    assert f"needs {tmp_path}/pathways-emulator-server, which" in faults[0].problem
    assert f"needs {tmp_path}/pathways-emulator-proxy-server, which" in faults[1].problem


def test_an_environment_whose_jax_is_too_old_for_the_emulator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(containers, "installed_jax", lambda: "0.11.1")
    (fault,) = preflight(load(tmp_path))
    assert (fault.variable, fault.value) == ("PATHWAYS_RUNTIME", "emulator")
    assert fault.problem.startswith(
        f"does not run on the JAX 0.11.1 of {sys.prefix}, it needs 0.12.0 or newer: make an "
        "environment for it with scripts/setup_env.sh --emulator"
    )
    monkeypatch.setattr(containers, "installed_jax", lambda: "0.12.0.1")
    assert preflight(load(tmp_path)) == []


def test_what_containers_need_of_this_machine_is_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    images = tmp_path / "images"
    both = {"PATHWAYS_CONTAINER": "enroot", "PATHWAYS_IMAGE_DIR": str(images)}
    both["PATHWAYS_PROXY_IMAGE"] = f"{tmp_path}/proxy.sqsh"
    settings = load(tmp_path, **both)
    enroot, proxy, own = preflight(settings)
    assert (enroot.variable, proxy.variable, own.variable) == (
        "PATHWAYS_CONTAINER",
        "PATHWAYS_PROXY_IMAGE",
        "PATHWAYS_IMAGE_DIR",
    )
    assert f"needs the command enroot, which is not on PATH ({tmp_path})" in enroot.problem
    assert proxy.problem == f"is not there: there is no image {tmp_path}/proxy.sqsh"
    assert f"make it with '{sys.executable} " in own.problem
    assert f"/enroot/emulator_image.py {images}'" in own.problem

    program = tmp_path / "enroot"
    program.touch(0o700)
    images.mkdir()
    emulator_image.image_file(images, version("jaxlib")).touch()
    (tmp_path / "proxy.sqsh").touch()
    assert preflight(settings) == []
