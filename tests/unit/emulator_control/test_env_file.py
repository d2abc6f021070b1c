# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from pathways_emulator import env_file
from pathways_slurm import cluster_env

VARIABLES = {"JAX_PLATFORMS": "proxy", "JAX_BACKEND_TARGET": "grpc://127.0.0.1:29000"}


def test_it_is_for_shells_and_private(tmp_path: Path) -> None:
    path = tmp_path / "runtime.env"
    env_file.write(path, VARIABLES, "process 1 abc")
    mark, *lines = path.read_text().splitlines()
    assert mark.startswith("# Written by pathways-emulator serve")
    assert env_file.is_ours(path)
    assert lines == [
        "export JAX_PLATFORMS=proxy",
        "export JAX_BACKEND_TARGET=grpc://127.0.0.1:29000",
    ]
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_it_is_removed_by_its_writer_only(tmp_path: Path) -> None:
    path = tmp_path / "runtime.env"
    env_file.write(path, VARIABLES, "process 1 abc")
    env_file.write(path, VARIABLES, "process 2 def")
    env_file.remove(path, "process 1 abc")
    assert path.exists()
    env_file.remove(path, "process 2 def")
    assert not path.exists()
    env_file.remove(path, "process 2 def")


@pytest.mark.parametrize("text", ["alias ll='ls -l'\n", ""])
def test_a_file_of_somebody_else_is_not_ours(tmp_path: Path, text: str) -> None:
    path = tmp_path / ".bashrc"
    path.write_text(text)
    assert not env_file.is_ours(path)
    env_file.remove(path, "process 1 abc")
    assert path.exists()


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("keep")
    path = tmp_path / "runtime.env"
    path.symlink_to(target)
    env_file.write(path, VARIABLES, "process 1 abc")
    assert target.read_text() == "keep"
    assert not path.is_symlink()


def test_a_cluster_env_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "cluster.env"
    cluster = cluster_env.ClusterEnv(
        run_id="run-1",
        name="my service",
        home="/home/me/pathways dir",
        proxy_address="10.0.0.1:29000",
        rm_address="10.0.0.1:29001",
        tpu_type="v6e",
        slice_shape="2x4",
        min_slices=1,
        max_slices=3,
    )
    cluster_env.write(path, cluster)
    assert env_file.read(path) == cluster.variables()


@pytest.mark.parametrize(
    "line",
    [
        "export PATHWAYS_NAME=$(touch /tmp/x)",
        "export PATHWAYS_NAME='a'b'",
        "PATHWAYS_NAME=two words",
        ". other.env",
        "export path=/tmp",
    ],
)
def test_a_line_of_another_form_is_told_and_not_executed(tmp_path: Path, line: str) -> None:
    path = tmp_path / "runtime.env"
    path.write_text(f"# comment\n\nexport JAX_PLATFORMS=proxy\n{line}\n")
    with pytest.raises(ValueError, match=r"line 4: .* is not of the form export NAME=VALUE"):
        env_file.read(path)


def test_a_file_that_others_can_write_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "runtime.env"
    env_file.write(path, VARIABLES, "process 1 abc")
    path.chmod(0o622)
    with pytest.raises(ValueError, match="other users can write to it"):
        env_file.read(path)
