# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""How the layer fails: a code for each cause, what was wrong, and what to do."""

from pathlib import Path

import pytest
from tests.enroot.layer import Layer


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["/image.sqsh"],
        ["/image.sqsh", "Upper", "--", "/bin/true"],
        ["/image.sqsh", "../x", "--", "/bin/true"],
        ["/image.sqsh", "rm", "/bin/true"],
        ["/image.sqsh", "rm", "--"],
        ["/image.sqsh", "rm", "--", "true"],
        ["/image.sqsh", "rm", "--mount", "relative:/x", "--", "/bin/true"],
        ["/image.sqsh", "rm", "--mount", "/with space:/x", "--", "/bin/true"],
        ["/image.sqsh", "rm", "--mount"],
        ["nonsense", "rm", "--", "/bin/true"],
        ["host.example/no/tag", "rm", "--", "/bin/true"],
        ["host.example/Upper/case:1", "rm", "--", "/bin/true"],
        ["path/without/host:1", "rm", "--", "/bin/true"],
        ["host.example/short/digest@sha256:12", "rm", "--", "/bin/true"],
    ],
)
def test_wrong_usage(layer: Layer, arguments: list[str]) -> None:
    done = layer.script("run_in_container.sh", *arguments)
    assert done.returncode == 64
    assert done.stderr.startswith("error: ")


def test_help_tells_the_codes(layer: Layer) -> None:
    done = layer.script("run_in_container.sh", "--help")
    assert done.returncode == 0
    assert all(str(code) in done.stdout for code in range(64, 71))


def test_an_image_that_is_not_there(layer: Layer) -> None:
    done = layer.run("/no/such/image.sqsh", "/bin/true")
    assert done.returncode == 65
    assert "/no/such/image.sqsh" in done.stderr


def test_an_image_that_is_none(layer: Layer, tmp_path: Path) -> None:
    (tmp_path / "text.sqsh").write_text("text")
    done = layer.run(tmp_path / "text.sqsh", "/bin/true")
    assert done.returncode == 65
    assert layer.containers() == []


def test_enroot_is_not_installed(layer: Layer, image: Path) -> None:
    (layer.programs / "enroot").unlink()
    done = layer.run(image, "/bin/true")
    assert done.returncode == 70
    assert "no enroot on PATH" in done.stderr


def test_no_space_to_import(layer: Layer) -> None:
    layer.put("df", "printf 'Avail\\n1048576\\n'")
    done = layer.run("host.example/a/b:1", "/bin/true")
    assert done.returncode == 67
    assert "has 1 MiB free" in done.stderr
    assert "PATHWAYS_CONTAINER_DIR" in done.stderr


def test_no_space_to_keep_what_is_imported(layer: Layer) -> None:
    layer.put(
        "df",
        "case $* in */imports/*) free=9999999999 ;; *) free=1048576 ;; esac; "
        "printf 'Avail\\n%s\\n' $free",
    )
    done = layer.run("host.example/a/b:1", "/bin/true")
    assert done.returncode == 67
    assert "No space to keep the image of docker://host.example#a/b:1" in done.stderr
    assert "has 1 MiB free" in done.stderr
    assert "and 1024 MiB are needed" in done.stderr
    assert "PATHWAYS_IMAGE_DIR" in done.stderr


def test_no_space_while_unpacking(layer: Layer, image: Path) -> None:
    layer.put("enroot", "echo 'write failed: No space left on device' >&2; exit 1")
    done = layer.run(image, "/bin/true")
    assert done.returncode == 67
    assert layer.containers() == []


def test_user_namespaces_are_not_allowed(layer: Layer, image: Path) -> None:
    layer.put("unshare", "echo 'unshare: unshare failed: Operation not permitted' >&2; exit 1")
    layer.put(
        "enroot",
        'case "$1" in create) mkdir -p "${ENROOT_DATA_PATH}/$3" ;;\n'
        "*) echo 'enroot-nsenter: failed to create user namespace' >&2; exit 1 ;; esac",
    )
    done = layer.run(image, "/bin/true")
    assert done.returncode == 68
    assert "user.max_user_namespaces" in done.stderr


def test_an_enroot_that_may_what_unshare_may_not_is_believed(layer: Layer, image: Path) -> None:
    layer.put("unshare", "exit 1")
    layer.put(
        "enroot", 'case "$1" in create) mkdir -p "${ENROOT_DATA_PATH}/$3" ;; *) echo ran ;; esac'
    )
    done = layer.run(image, "/bin/true")
    assert (done.returncode, done.stdout) == (0, "ran\n")


@pytest.mark.parametrize(
    "kind", ["nfs4", "nfs", "lustre", "gpfs", "cifs", "beegfs", "fuse.gcsfuse", "virtiofs"]
)
def test_a_shared_file_system_is_refused(layer: Layer, image: Path, kind: str) -> None:
    layer.put("findmnt", f"echo {kind} rw,relatime")
    done = layer.run(image, "/bin/true")
    assert done.returncode == 69
    assert f"({kind})" in done.stderr
    assert "PATHWAYS_CONTAINER_DIR" in done.stderr


@pytest.mark.parametrize("kind", ["ext4", "xfs", "tmpfs", "btrfs", "overlay", "fuseblk"])
def test_a_local_one_is_taken(layer: Layer, image: Path, kind: str) -> None:
    layer.put("findmnt", f"echo {kind} rw,relatime")
    layer.put("enroot", 'mkdir -p "${ENROOT_DATA_PATH}/$3"; echo ran')
    assert layer.run(image, "/bin/true").returncode == 0


def test_a_file_system_without_programs_is_refused(layer: Layer, image: Path) -> None:
    layer.put("findmnt", "echo ext4 rw,nosuid,noexec,relatime")
    done = layer.run(image, "/bin/true")
    assert done.returncode == 69
    assert "noexec" in done.stderr


def test_a_directory_that_others_may_use_is_refused(layer: Layer, image: Path) -> None:
    layer.base.mkdir()
    layer.base.chmod(0o755)
    done = layer.run(image, "/bin/true")
    assert done.returncode == 69
    assert "chmod 700" in done.stderr


def test_a_link_in_the_place_of_the_directory_is_refused(
    layer: Layer, image: Path, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    layer.base.symlink_to(tmp_path / "elsewhere")
    done = layer.run(image, "/bin/true")
    assert done.returncode == 69
    assert "not a directory of yours" in done.stderr


def test_a_directory_that_can_not_be_made_is_said(layer: Layer, image: Path) -> None:
    done = layer.run(image, "/bin/true", environment={"PATHWAYS_CONTAINER_DIR": "/proc/containers"})
    assert done.returncode == 69


@pytest.mark.parametrize("value", ["relative", "/with space", "/with:colon"])
def test_a_setting_that_enroot_could_not_take_is_refused(
    layer: Layer, image: Path, value: str
) -> None:
    done = layer.run(image, "/bin/true", environment={"PATHWAYS_CONTAINER_DIR": value})
    assert done.returncode == 64
    assert f"'{value}'" in done.stderr
