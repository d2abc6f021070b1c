# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The layer's decisions by themselves: references, file names, devices, causes of faults."""

import subprocess
from pathlib import Path

import pytest
from tests.enroot.layer import SCRIPTS

DIGEST = "sha256:" + "0123456789abcdef" * 4


def call(*words: str | Path) -> str:
    """What a function of the layer prints."""
    done = subprocess.run(
        [
            *("bash", "-euo", "pipefail", "-c", 'source "$1"; shift; "$@"', "bash"),
            *(SCRIPTS / "lib" / "layer.sh", *words),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.removesuffix("\n")


@pytest.mark.parametrize(
    ("reference", "uri"),
    [
        ("us-docker.pkg.dev/a/b:jax-1", "docker://us-docker.pkg.dev#a/b:jax-1"),
        ("docker://us-docker.pkg.dev/a/b:jax-1", "docker://us-docker.pkg.dev#a/b:jax-1"),
        ("docker://us-docker.pkg.dev#a/b:jax-1", "docker://us-docker.pkg.dev#a/b:jax-1"),
        ("me@host.example/a:1", "docker://me@host.example#a:1"),
        ("localhost:5000/a/b_c.d:V1", "docker://localhost:5000#a/b_c.d:V1"),
        (f"host.example/a/b@{DIGEST}", f"docker://host.example#a/b@{DIGEST}"),
    ],
)
def test_references_become_the_form_that_every_enroot_takes(reference: str, uri: str) -> None:
    assert call("image::uri", reference) == uri


def test_the_name_of_a_file_tells_references_apart() -> None:
    names = {
        call("image::file_name", uri)
        for uri in (
            "docker://host.example#a/server:1",
            "docker://host.example#b/server:1",
            "docker://host.example#a/server:2",
            f"docker://host.example#a/server@{DIGEST}",
        )
    }
    assert len(names) == 4
    assert all(name.startswith("server+") and name.endswith(".sqsh") for name in names)
    assert not any(set(name) & set("/:@#") for name in names)


def test_the_devices_of_a_tpu_are_listed_where_they_are(tmp_path: Path) -> None:
    assert call("devices::list", tmp_path) == ""
    for name in ("accel0", "accel1", "null", "vfio"):
        (tmp_path / name).mkdir()
    listed = call("devices::list", tmp_path).splitlines()
    assert listed == [str(tmp_path / name) for name in ("vfio", "accel0", "accel1")]


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("[ERROR] URL https://h/v2/a/manifests/1 returned error code: 401 Unauthorized", 66),
        ("[ERROR] URL https://h/v2/a/manifests/1 returned error code: 403 Forbidden", 66),
        ("[ERROR] URL https://h/v2/a/manifests/1 returned error code: 404 Not Found", 65),
        ("[ERROR] Invalid image format: /x.sqsh", 65),
        ("Write on output file failed because No space left on device", 67),
        ("write: Disk quota exceeded", 67),
        ("enroot-nsenter: failed to create user namespace: Operation not permitted", 68),
        ("[ERROR] URL https://h/v2/a/manifests/1 returned error code: 503 Service Unavailable", 70),
        ("", 70),
    ],
)
def test_what_enroot_says_tells_the_cause(said: str, code: int, tmp_path: Path) -> None:
    (tmp_path / "said").write_text(said)
    assert call("faults::of_enroot", tmp_path / "said") == str(code)
