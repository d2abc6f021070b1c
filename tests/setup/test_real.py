# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The environment of the images' JAX, with its real packages: a program in it, and the emulator."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.setup.small import JAX, ROOT

NETWORK = "127.62.0.0/16"
SECONDS = 900.0

PROGRAM = """
import pathwaysutils
pathwaysutils.initialize()
import jax, numpy, optax, orbax.checkpoint
total = jax.jit(lambda x: (x @ x.T).sum())(jax.numpy.arange(64.0).reshape(8, 8))
print(jax.__version__, {device.slice_index for device in jax.devices()}, float(total))
"""


@pytest.fixture
def environments(tmp_path: Path) -> Path:
    """As setup_env.sh makes them from a package index, or from pip's cache."""
    place = tmp_path / "environments"
    done = subprocess.run(
        [ROOT / "scripts" / "setup_env.sh", "--no-images", "--dir", place],
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return place


@pytest.fixture
def emulator(tmp_path: Path) -> Iterator[Path]:
    """A running emulator of the developers' JAX: the file with its variables."""
    variables = tmp_path / "emulator.env"
    serve = subprocess.Popen(
        [
            ROOT / ".venv" / "bin" / "pathways-emulator",
            "serve",
            "--slices=2",
            "--slice-shape=2x2",
            f"--network={NETWORK}",
            f"--env-file={variables}",
        ],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    assert serve.stderr is not None
    try:
        said = []
        for line in serve.stderr:
            said.append(line)
            if "ready; Ctrl-C ends it" in line:
                break
        assert variables.exists(), "".join(said)
        yield variables
    finally:
        serve.terminate()
        serve.communicate(timeout=60)


@pytest.mark.timeout(1200)
def test_a_program_of_the_images_jax_runs_on_the_emulator(
    environments: Path, emulator: Path
) -> None:
    environment = environments / "current"
    done = subprocess.run(
        [
            environment / "bin" / "pathways-slurm",
            "run",
            f"--cluster-env={emulator}",
            "--",
            environment / "bin" / "python",
            "-c",
            PROGRAM,
        ],
        env={**os.environ, "PYTHONNOUSERSITE": "1"},
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"{JAX} {{0, 1}} 510720.0"
