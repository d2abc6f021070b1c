# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""cluster_env.py against real readers: bash, python-dotenv, and our own."""

import shutil
import subprocess
import tempfile
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest
from dotenv import dotenv_values
from hypothesis import given, settings
from hypothesis import strategies as st

from pathways_slurm import cluster_env
from pathways_slurm.cluster_env import ClusterEnv, ClusterEnvError
from pathways_slurm.config import load_settings

BASH = shutil.which("bash") or "bash"

ENV = ClusterEnv(
    run_id="0123456789ab",
    name="pathways",
    home="/home/ann/pathways",
    proxy_address="127.0.0.1:29000",
    rm_address="127.0.0.1:29001",
    tpu_type="v6e",
    slice_shape="2x4",
    min_slices=2,
    max_slices=3,
    jax_version="0.12.0",
    on_notice="forward",
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cluster.env"


def as_bash_reads(path: Path) -> dict[str, str]:
    """The exported variables after ``. FILE`` in a bash that had none."""
    script = 'set -euo pipefail; . "$1"; env -0'
    output = subprocess.run(
        [BASH, "-c", script, "bash", path], env={}, check=True, capture_output=True
    ).stdout
    pairs = (entry.partition("=") for entry in output.decode().split("\0") if entry)
    # PWD, SHLVL and _ are bash's own.
    return {name: value for name, _, value in pairs if name not in ("PWD", "OLDPWD", "SHLVL", "_")}


@pytest.mark.parametrize(
    ("client", "service", "fits"),
    [
        ("0.12.0", "0.12.0", True),
        ("0.12.0.1", "0.12.0", True),
        ("0.12.0", "0.12.0.1", True),
        ("0.12.0", "0.12.1", False),
        ("0.12.0", "0.1.20", False),
        ("0.12.0.dev20260101", "0.12.0", True),
        ("0.12.0", None, True),
    ],
)
def test_a_client_fits_if_its_first_three_numbers_are_the_services(
    client: str, service: str | None, fits: bool
) -> None:
    assert replace(ENV, jax_version=service).fits(client) is fits


def test_the_file(path: Path) -> None:
    cluster_env.write(path, ENV)
    assert path.stat().st_mode & 0o777 == 0o600
    assert [line for line in path.read_text().splitlines() if not line.startswith("#")] == [
        "export JAX_PLATFORMS=proxy",
        "export JAX_BACKEND_TARGET=grpc://127.0.0.1:29000",
        "export IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS=true",
        "export PATHWAYS_MAX_SLICES=3",
        "export PATHWAYS_MIN_SLICES=2",
        "export PATHWAYS_NAME=pathways",
        "export PATHWAYS_RM_ADDRESS=127.0.0.1:29001",
        "export PATHWAYS_RUN_ID=0123456789ab",
        "export PATHWAYS_SLICE_SHAPE=2x4",
        "export PATHWAYS_TPU_TYPE=v6e",
        "export PATHWAYS_HOME=/home/ann/pathways",
        "export PATHWAYS_JAX_VERSION=0.12.0",
        "export PATHWAYS_ON_NOTICE=forward",
    ]


def test_a_service_publishes_its_settings(path: Path) -> None:
    loaded = load_settings(
        {
            "SLICE_SHAPE": "2x2",
            "MIN_SLICES": "1",
            "MAX_SLICES": "2",
            "GCS_BUCKET": "bucket",
            "PATHWAYS_HOME": "/srv/path ways",
            "PATHWAYS_NAME": "blue",
            "PATHWAYS_PROXY_PORT": "30000",
        }
    )
    env = ClusterEnv.of(loaded, "run1", "127.9.0.1")
    cluster_env.write(path, env)
    assert cluster_env.read(path) == env
    assert env == ClusterEnv(
        run_id="run1",
        name="blue",
        home="/srv/path ways",
        proxy_address="127.9.0.1:30000",
        rm_address="127.9.0.1:29001",
        tpu_type="v6e",
        slice_shape="2x2",
        min_slices=1,
        max_slices=2,
        jax_version=version("jaxlib"),
        on_notice="suspend",
    )


def test_bash_and_dotenv_read_what_we_read(path: Path) -> None:
    env = replace(ENV, home='/home/ann b/ü "x" #1 & ; ~ !x (y)', jax_version=None)
    cluster_env.write(path, env)
    assert cluster_env.read(path) == env
    assert as_bash_reads(path) == env.variables()
    assert dotenv_values(path) == env.variables()


# Half of the characters mean something to a shell or a dotenv reader.
TRICKY = st.text(
    alphabet=st.sampled_from(' "#&;|<>(){}[]*?~!=%^,:')
    | st.characters(codec="utf-8", exclude_categories=["C", "Z"]),
    min_size=1,
    max_size=12,
)


@settings(max_examples=100, deadline=None)
@given(home=TRICKY | st.sampled_from("'\\$`\n\r\t\u2028\x85\xa0"))
def test_any_value_is_either_refused_or_read_alike_by_all(home: str) -> None:
    env = replace(ENV, home=home)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "cluster.env"
        try:
            cluster_env.write(path, env)
        except ValueError:
            assert not path.exists()
            assert not home.isprintable() or set(home) & set("'\\$`")
            return
        assert cluster_env.read(path) == env
        assert as_bash_reads(path) == env.variables()
        assert dotenv_values(path) == env.variables()


@pytest.mark.parametrize(
    "home",
    [
        "/x'; touch pwned; '",
        "/$(touch pwned)",
        "/`touch pwned`",
        "/a\nexport PATH=/evil",
        "/a\\",
        "\0",
    ],
)
def test_a_hostile_value_is_refused_and_nothing_is_published(home: str, path: Path) -> None:
    with pytest.raises(ValueError, match=r"can't be written to cluster\.env"):
        cluster_env.write(path, replace(ENV, home=home))
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("touch pwned", "'touch pwned' is not of the form export NAME=VALUE"),
        ("export  PATHWAYS_X=1", "is not of the form export NAME=VALUE"),
        ("pathways_x=1", "is not of the form export NAME=VALUE"),
        ("export LD_PRELOAD=/evil.so", "LD_PRELOAD has no place here. Valid: IFRT_*, JAX_*"),
        ("PATH=/evil", "PATH has no place here"),
        ("PATHWAYS_NAME=other", "PATHWAYS_NAME is there twice"),
        ("PATHWAYS_X=$(touch pwned)", "is neither a plain word"),
        ("PATHWAYS_X='a'$(touch pwned)'b'", "is neither a plain word"),
        ("PATHWAYS_X=a b", "is neither a plain word"),
        ("PATHWAYS_X=a;b", "is neither a plain word"),
        ('PATHWAYS_X="a"', "is neither a plain word"),
        ("PATHWAYS_X='a", "is neither a plain word"),
        ("PATHWAYS_X='", "is neither a plain word"),
        ("PATHWAYS_X=", "is neither a plain word"),
        ("PATHWAYS_X=a\r", "is neither a plain word"),
    ],
)
def test_a_line_that_we_do_not_write_is_refused_by_number(
    line: str, problem: str, path: Path
) -> None:
    path.write_text(ENV.render() + line + "\n")
    path.chmod(0o600)
    with pytest.raises(ClusterEnvError) as caught:
        cluster_env.read(path)
    number = ENV.render().count("\n") + 1
    assert str(caught.value).startswith(f"{path}, line {number}: ")
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("PATHWAYS_RUN_ID=0123456789ab", "PATHWAYS_X=1", "PATHWAYS_RUN_ID is missing"),
        ("JAX_PLATFORMS=proxy", "JAX_PLATFORMS=cpu", "JAX_PLATFORMS=cpu. Valid: proxy"),
        ("MIN_SLICES=2", "MIN_SLICES=two", "PATHWAYS_MIN_SLICES=two is not a whole number"),
        ("grpc://127.0.0.1:29000", "127.0.0.1:29000", "is not of the form grpc://ADDRESS:PORT"),
    ],
)
def test_a_file_that_does_not_make_sense_is_refused(
    old: str, new: str, problem: str, path: Path
) -> None:
    assert old in ENV.render()
    path.write_text(ENV.render().replace(old, new))
    path.chmod(0o600)
    with pytest.raises(ClusterEnvError) as caught:
        cluster_env.read(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert problem in str(caught.value)


def test_variables_of_a_newer_version_and_quotes_and_no_export_are_read(path: Path) -> None:
    text = ENV.render().replace("export PATHWAYS_TPU_TYPE=v6e", "PATHWAYS_TPU_TYPE='v6e'")
    path.write_text(f"{text}\n# a comment\nexport PATHWAYS_NEW='a b'\n")
    path.chmod(0o600)
    assert cluster_env.read(path) == ENV


def test_a_file_that_others_can_write_is_refused(path: Path) -> None:
    cluster_env.write(path, ENV)
    path.chmod(0o620)
    with pytest.raises(ClusterEnvError, match="other users can write to it"):
        cluster_env.read(path)


def test_bytes_that_are_no_text_are_refused(path: Path) -> None:
    path.write_bytes(b"\xff\n")
    path.chmod(0o600)
    with pytest.raises(ClusterEnvError, match="not UTF-8 text"):
        cluster_env.read(path)


def test_no_file_is_an_error_to_read_and_no_run(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        cluster_env.read(path)
    assert cluster_env.run_id_of(path) is None
    assert cluster_env.remove(path, ENV.run_id) is False


def test_only_the_run_that_published_withdraws(path: Path) -> None:
    cluster_env.write(path, ENV)
    assert cluster_env.run_id_of(path) == ENV.run_id
    assert cluster_env.remove(path, "another") is False
    assert cluster_env.read(path) == ENV
    assert cluster_env.remove(path, ENV.run_id) is True
    assert not path.exists()


def test_a_damaged_file_is_still_withdrawn_by_its_run(path: Path) -> None:
    path.write_bytes(b"\xff\nexport PATHWAYS_RUN_ID=0123456789ab\nrubbish")
    assert cluster_env.remove(path, ENV.run_id) is True
    assert not path.exists()
