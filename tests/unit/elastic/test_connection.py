# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What connect() decides and refuses before it needs JAX."""

import logging
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pytest

from pathways_elastic import connect
from pathways_elastic.connection import (
    ConnectError,
    NoServiceError,
    VersionMismatchError,
    cluster_env_path,
    devices_of,
)
from pathways_slurm import cluster_env
from pathways_slurm.cluster_env import ClusterEnv

# Nothing listens there.
SERVICE = ClusterEnv(
    run_id="r1",
    name="one",
    home=None,
    proxy_address="127.47.255.1:9",
    rm_address="127.47.255.1:10",
    tpu_type="v6e",
    slice_shape="2x2",
    min_slices=1,
    max_slices=2,
)


@pytest.fixture(autouse=True)
def no_service_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PATHWAYS_CLUSTER_ENV", "PATHWAYS_HOME", "PATHWAYS_NAME"):
        monkeypatch.delenv(name, raising=False)


def test_the_file_is_the_argument_else_the_variable_else_the_default_service() -> None:
    home = Path.home() / "pathways"
    assert cluster_env_path("/a/b", {"PATHWAYS_CLUSTER_ENV": "/c"}) == Path("/a/b")
    assert cluster_env_path(None, {"PATHWAYS_CLUSTER_ENV": "/c"}) == Path("/c")
    assert cluster_env_path("here", {}) == Path.cwd() / "here"
    assert cluster_env_path("~/x", {}) == Path.home() / "x"
    assert cluster_env_path(None, {}) == home / "cluster.env"
    assert cluster_env_path(None, {"PATHWAYS_CLUSTER_ENV": ""}) == home / "cluster.env"
    named = cluster_env_path(None, {"PATHWAYS_HOME": "/h", "PATHWAYS_NAME": "two"})
    assert named == Path("/h/services/two/cluster.env")
    with pytest.raises(ConnectError, match="PATHWAYS_NAME is 'A B'"):
        cluster_env_path(None, {"PATHWAYS_NAME": "A B"})


def test_every_fault_of_the_arguments_is_told_at_once() -> None:
    with pytest.raises(ValueError, match=r"timeout_s must be > 0.*min_slices must be >= 1, got 0"):
        connect(timeout_s=0, min_slices=0)


def test_a_service_that_does_not_come_is_waited_for_aloud_and_then_an_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "cluster.env"
    with (
        caplog.at_level(logging.WARNING, "pathways_elastic"),
        pytest.raises(NoServiceError, match=r"after 0\.3 s: .*cluster\.env is not there.*up'"),
    ):
        connect(path, timeout_s=0.3)
    assert [record.message for record in caplog.records if str(path) in record.message]


def test_a_proxy_that_does_not_answer_is_told_from_a_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "cluster.env"
    cluster_env.write(path, SERVICE)
    with pytest.raises(NoServiceError, match=r"its IFRT proxy 127\.47\.255\.1:9 does not answer"):
        connect(path, timeout_s=0.3)


@pytest.mark.parametrize(
    ("content", "mode", "words"),
    [
        (b"export JAX_PLATFORMS=proxy\n", 0o600, "is missing. The file is not whole"),
        (b"LD_PRELOAD=/evil.so\n", 0o600, "line 1: LD_PRELOAD has no place here"),
        (b"\xff", 0o600, "not UTF-8 text"),
        (b"", 0o666, "other users can write to it"),
    ],
)
def test_a_broken_file_is_an_error_at_once_that_says_how_to_get_a_whole_one(
    content: bytes, mode: int, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "cluster.env"
    path.write_bytes(content)
    path.chmod(mode)
    with pytest.raises(ConnectError, match=f"{words}.*started again"):
        connect(path)


def test_a_file_that_is_a_directory_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConnectError, match="can't be read: Is a directory"):
        connect(tmp_path)


def test_both_versions_of_jax_are_named_when_they_differ_and_the_services_in_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "cluster.env"
    cluster_env.write(path, replace(SERVICE, jax_version="0.11.1.2"))
    monkeypatch.setattr("pathways_slurm.probe.answering", set)
    with pytest.raises(VersionMismatchError) as caught:
        connect(path)
    here = version("jaxlib")
    assert f"JAX is {here} here and 0.11.1.2 in the service" in str(caught.value)
    assert "(pip install jax==0.11.1.2 jaxlib==0.11.1.2)" in str(caught.value)
    assert str(caught.value).endswith(f"or start a service of JAX {here}")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            "Backend 'proxy' is not in the list of known backends",
            r"pathwaysutils\.initialize\(\) was called before .* leave that call out",
        ),
        ("UNAVAILABLE: no route", r"can't use the IFRT proxy at 127\.47\..*no route.*proxy\.log"),
    ],
)
def test_what_jax_refuses_is_told_with_what_to_do(
    error: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise RuntimeError(error)

    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(devices=refuse))
    with pytest.raises(ConnectError, match=words):
        devices_of(SERVICE)


def test_the_package_is_imported_without_jax_and_has_the_manager() -> None:
    program = (
        "import sys, pathways_elastic\n"
        "assert not {'jax', 'numpy', 'orbax', 'pathwaysutils'} & sys.modules.keys()\n"
        "from pathways_elastic import manager\n"
        "assert manager.Manager\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "usage: python -m pathways_elastic PROGRAM.py"),
        (["-m"], "usage: python -m pathways_elastic PROGRAM.py"),
        (["no-such-program.py"], "no-such-program.py: there is no such program"),
    ],
)
def test_a_launcher_without_a_program_says_how_it_is_used(words: list[str], said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pathways_elastic", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr.startswith(said)) == (2, True), done.stderr
