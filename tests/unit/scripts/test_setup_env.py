# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""scripts/setup_env.sh, as far as it changes nothing: plans, and faults seen at once."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pathways_slurm.emulator_image import OLDEST_JAX

ROOT = Path(__file__).resolve().parents[3]
HOST = "us-docker.pkg.dev/cloud-tpu-v2-images/pathways"
TOOLS = (
    *("bash", "env", "cat", "df", "dirname", "grep", "head", "id", "ls", "readlink", "sed"),
    *("sha256sum", "sort", "tail", "timeout"),
)


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A directory with what a minimal login node has, and Python; no Enroot, no mksquashfs."""
    directory = tmp_path / "tools"
    directory.mkdir()
    for name in TOOLS:
        found = shutil.which(name)
        assert found is not None, name
        (directory / name).symlink_to(found)
    (directory / "python3").symlink_to(Path(sys.base_prefix) / "bin" / "python3")
    return directory


@pytest.fixture
def enroot(tools: Path) -> None:
    (tools / "enroot").symlink_to(ROOT / "tests" / "standins" / "enroot")


def run(tools: Path, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A set-up in a place that is not there, by someone without pyenv."""
    place = tools.parent / "shared"
    done = subprocess.run(
        [tools / "bash", ROOT / "scripts" / "setup_env.sh", "--dir", place, *options],
        env={"PATH": str(tools), "HOME": str(tools.parent), **variables},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert not place.exists()
    return done


def plan(tools: Path, *options: str, **variables: str) -> list[str]:
    done = run(tools, "--dry-run", *options, **variables)
    assert done.returncode == 0, done.stderr
    place = str(tools.parent / "shared")
    return [line.replace(place, "DIR") for line in done.stdout.splitlines()]


def fault(code: int, tools: Path, *options: str, **variables: str) -> str:
    done = run(tools, *options, **variables)
    assert done.returncode == code, done.stderr
    return done.stderr


def packages(name: str) -> int:
    lines = (ROOT / "scripts" / "locks" / name).read_text().splitlines()
    return sum(line[0] != " " for line in lines)


@pytest.mark.usefixtures("enroot")
def test_the_plan_for_tpus_is_an_environment_and_the_images_that_match_it(tools: Path) -> None:
    make, *images, point = plan(tools)
    lock = "jax-0.11.1.lock"
    assert make == (
        f"make DIR/jax-0.11.1 (there is none yet), with the {packages(lock)} packages of"
        f" scripts/locks/{lock}"
    )
    assert [line.rpartition(" to ")[0] for line in images] == [
        f"import {HOST}/proxy_server:jax-0.11.1",
        f"import {HOST}/server:jax-0.11.1",
    ]
    assert all(" to DIR/images/" in line for line in images)
    assert point == "point DIR/current to jax-0.11.1"


def test_the_emulator_and_maxtext_get_the_emulators_jax(tools: Path) -> None:
    version = "0.12.0.1"
    jax, current, maxtext, link = plan(tools, "--emulator", "--maxtext", "--no-images")
    assert jax.startswith(f"make DIR/jax-{version} ")
    assert current == f"point DIR/current to jax-{version}"
    assert maxtext.endswith(f"packages of scripts/locks/maxtext-jax-{version}.lock")
    assert link == f"point DIR/maxtext to maxtext-jax-{version}"


def test_any_other_version_is_left_to_pip(tools: Path) -> None:
    make, point = plan(tools, "--jax", "0.11.2", "--no-images")
    assert make.endswith("with JAX 0.11.2 and packages that pip chooses")
    assert point == "point DIR/current to jax-0.11.2"


def test_images_that_are_files_are_not_imported(tools: Path, tmp_path: Path) -> None:
    image = tmp_path / "image.sqsh"
    image.touch()
    images = {"PATHWAYS_SERVER_IMAGE": str(image), "PATHWAYS_PROXY_IMAGE": str(image)}
    steps = plan(tools, "--jax", "0.11.2", **images)
    assert [step.split()[0] for step in steps] == ["make", "point"]


def test_a_plan_tells_what_is_in_its_way(tools: Path) -> None:
    done = run(tools, "--dry-run")
    assert done.returncode == 5
    assert len(done.stdout.splitlines()) == 4
    assert "There is no enroot on PATH" in done.stderr
    assert "--no-images" in done.stderr


def test_without_mksquashfs_there_is_no_image_of_the_emulator(tools: Path) -> None:
    if Path("/usr/sbin/mksquashfs").exists() or Path("/sbin/mksquashfs").exists():
        # It is looked for there, whatever PATH says.
        assert plan(tools, "--emulator")[1] == "build the image of the emulator in DIR/images"
    else:
        assert "apt-get install squashfs-tools" in fault(5, tools, "--emulator")


def test_a_version_without_images_is_a_fault_unless_they_are_named(tools: Path) -> None:
    said = fault(2, tools, "--jax", "0.11.2")
    assert "no images are known for JAX 0.11.2; known are those for 0.11.1" in said
    assert "--no-images" in said


def test_an_image_that_is_not_there_is_a_fault(tools: Path) -> None:
    said = fault(2, tools, PATHWAYS_SERVER_IMAGE="/nowhere/image.sqsh")
    assert "There is no image /nowhere/image.sqsh that can be read here" in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--jaxx"], "Unknown argument: --jaxx"),
        (["--jax"], "--jax needs a value"),
        (["--jax", "--emulator"], "--jax needs a value"),
        (["--jax", "newest"], "--jax newest: that is no version such as 0.11.1"),
        (["--jax", "0.9.2"], "this project needs JAX 0.10.2 or newer"),
        (["--emulator", "--jax", "0.11.1"], f"the emulator runs on JAX {OLDEST_JAX} or newer"),
        (["--dir", "/a place"], "Images can't be kept in '/a place/images'"),
        (["--wheels", "/proc/self"], "there are no wheels (*.whl) in it"),
    ],
)
def test_wrong_usage_is_said(tools: Path, options: list[str], said: str) -> None:
    assert said in fault(2, tools, *options)


def test_without_a_python_it_says_what_to_install(tools: Path) -> None:
    (tools / "python3").unlink()
    assert "No Python that will do" in fault(3, tools, "--no-images")


def test_a_place_without_space_is_a_fault(tools: Path) -> None:
    # Nothing can be made there, not even by root.
    said = fault(4, tools, "--no-images", "--dir", "/proc/self/environments")
    assert "--dir DIR" in said
    assert "/proc/self" in said


def test_the_help_has_defaults_and_exit_codes(tools: Path) -> None:
    done = run(tools, "--help")
    assert done.returncode == 0
    assert "(default: 0.11.1, the newest with images;" in done.stdout
    assert "with --emulator 0.12.0.1" in done.stdout
    assert "Exit codes: 0 ready" in done.stdout
