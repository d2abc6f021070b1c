# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Which images go with which JAX."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pathways_slurm import emulator_image
from pathways_slurm.images import (
    ImageError,
    Images,
    emulator_images,
    images_for,
    load_images,
    main,
    missing_files,
    read_table,
)

TABLE = {"1.2.3": Images("host.example/a/server:1", "host.example/a/proxy:1", "host.example/a/c:1")}


def test_a_known_version_has_images() -> None:
    assert images_for("1.2.3", TABLE, {}) == TABLE["1.2.3"]


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        ("PATHWAYS_SERVER_IMAGE", ("/mine.sqsh", "host.example/a/proxy:1")),
        ("PATHWAYS_PROXY_IMAGE", ("host.example/a/server:1", "/mine.sqsh")),
    ],
)
def test_one_image_may_be_replaced(variable: str, expected: tuple[str, str]) -> None:
    images = images_for("1.2.3", TABLE, {variable: "/mine.sqsh"})
    assert (images.server, images.proxy_server) == expected
    assert images.sidecar == "host.example/a/c:1"


def test_an_empty_variable_is_an_unset_one() -> None:
    assert images_for("1.2.3", TABLE, {"PATHWAYS_SERVER_IMAGE": ""}) == TABLE["1.2.3"]


@pytest.mark.parametrize("version", ["9.9.9", None])
def test_an_unknown_version_needs_both_images(version: str | None) -> None:
    both = {"PATHWAYS_SERVER_IMAGE": "/s.sqsh", "PATHWAYS_PROXY_IMAGE": "/p.sqsh"}
    assert images_for(version, TABLE, both) == Images("/s.sqsh", "/p.sqsh")
    for left_out in both:
        with pytest.raises(ImageError, match="set both"):
            images_for(version, TABLE, {**both, left_out: ""})


def test_the_error_names_the_version_and_the_known_ones() -> None:
    with pytest.raises(ImageError, match=r"for JAX 9\.9\.9; known are those for 1\.2\.3"):
        images_for("9.9.9", TABLE, {})


def test_the_table_of_this_installation_is_right() -> None:
    images = load_images("0.11.1", {})
    assert images.server.endswith("/server:jax-0.11.1")
    assert images.proxy_server.endswith("/proxy_server:jax-0.11.1")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[", "no TOML"),
        ('"1.0" = 1', "expected a table"),
        ('["1.0"]\nserver = "a"', "proxy_server is missing"),
        ('["1.0"]\nserver = "a"\nproxy_server = "b"\nproxy = "c"', "unknown proxy"),
        ('["1.0"]\nserver = "a"\nproxy_server = 1', "proxy_server is 1"),
        ('["1.0"]\nserver = ""\nproxy_server = "b"', "server is ''"),
    ],
)
def test_a_wrong_table_is_told(text: str, fault: str) -> None:
    with pytest.raises(ImageError, match=fault):
        read_table(text)


def test_the_emulator_has_an_image_of_its_own(tmp_path: Path) -> None:
    image = emulator_image.image_file(tmp_path, "1.2.3")
    image.touch()
    assert emulator_images("1.2.3", tmp_path, {}) == Images(str(image), str(image))
    replaced = emulator_images("1.2.3", tmp_path, {"PATHWAYS_PROXY_IMAGE": "/mine.sqsh"})
    assert replaced == Images(str(image), "/mine.sqsh")


def test_an_image_of_the_emulator_that_is_missing_can_be_made(tmp_path: Path) -> None:
    image = tmp_path / "mine.sqsh"
    images = emulator_images("1.2.3", tmp_path, {"PATHWAYS_PROXY_IMAGE": str(image)})
    missing = missing_files(images)
    assert list(missing) == [images.server, str(image)]
    assert missing[str(image)] == f"there is no image {image}"
    making = f"make it with '{sys.executable} .*/enroot/emulator_image\\.py {tmp_path}'$"
    assert re.search(making, missing[images.server])
    for file in missing:
        Path(file).touch()
    assert missing_files(images) == {}
    assert missing_files(load_images("0.11.1", {})) == {}


def test_the_command_prints_references_and_needs_no_environment() -> None:
    sources = Path(__file__).parents[3] / "supervisor"
    done = subprocess.run(
        [sys.executable, "-P", "-S", "-m", "pathways_slurm.images", "0.11.1"],
        env={"PYTHONPATH": str(sources), "PATHWAYS_PROXY_IMAGE": "/mine.sqsh"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    server = load_images("0.11.1", {}).server
    assert done.stdout == f"server {server}\nproxy_server /mine.sqsh\n"


def test_the_command_says_what_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in os.environ if name.startswith("PATHWAYS_")]:
        monkeypatch.delenv(name)
    assert main(["9.9.9"]) == 2
    assert "no images are known for JAX 9.9.9" in capsys.readouterr().err
    assert main(["--emulator", str(tmp_path), "9.9.9"]) == 2
    assert "there is no image of the emulator as it is now" in capsys.readouterr().err
