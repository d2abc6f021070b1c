# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""setup_env.sh from nothing to ready, killed, twice at once, and without what it needs."""

import os
import signal
import subprocess
from pathlib import Path

import pytest
from tests.setup.small import JAX, SmallCheckout, finish

pytestmark = pytest.mark.timeout(1200)


@pytest.fixture
def checkout(tmp_path: Path) -> SmallCheckout:
    return SmallCheckout(tmp_path)


def state(directory: Path) -> dict[Path, int]:
    """Every file and when it was last written."""
    return {path: path.lstat().st_mtime_ns for path in directory.rglob("*")}


def prints(command: Path, *arguments: str) -> str:
    return subprocess.check_output([command, *arguments], text=True, cwd="/").strip()


def test_killed_anywhere_it_is_taken_up_until_all_is_there(checkout: SmallCheckout) -> None:
    for moment in ("Setting up ", "Installing 1 packages", "Installing the project", "Importing"):
        process = checkout.start()
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if line.startswith(moment):
                os.killpg(process.pid, signal.SIGKILL)
                break
        else:
            pytest.fail(f"it has not said {moment!r}: {said}")
        process.communicate()

    said_at_last = checkout.run("--maxtext")
    assert f"Ready: JAX {JAX} in {checkout.environments}." in said_at_last
    environment = checkout.found()
    assert environment == checkout.environments / f"jax-{JAX}"
    assert f"Setting up {environment} " not in said_at_last, "it was complete"
    assert prints(environment / "bin" / "pathways-slurm") == JAX
    with_maxtext = checkout.found("maxtext_environment")
    assert with_maxtext == checkout.environments / f"maxtext-jax-{JAX}"
    assert prints(with_maxtext / "bin/python", "-c", "import maxtext; maxtext.main()") == "0.2.5"
    images = sorted((checkout.environments / "images").glob("*.sqsh"))
    assert [image.read_text() for image in images] == ["proxy_server", "server"]

    before = state(checkout.environments)
    assert checkout.run("--maxtext") == (
        f"Nothing to do: {checkout.environments} has all for JAX {JAX}.\n"
    )
    assert state(checkout.environments) == before


def test_two_at_once_wait_for_each_other(checkout: SmallCheckout) -> None:
    gate = checkout.root / "gate"
    os.mkfifo(gate)
    first = checkout.start()
    # This returns when the back end has opened the other end.
    with gate.open("w"):
        second = checkout.start()
        assert second.stderr is not None
        assert second.stderr.readline() == (
            f"Another set-up of {checkout.environments}/jax-{JAX} is running; waiting for it\n"
        )
        assert second.poll() is None
        gate.unlink()
    for process in (first, second):
        assert f"Ready: JAX {JAX}" in finish(process)
    assert prints(checkout.found() / "bin" / "pathways-slurm") == JAX


def test_a_version_without_a_lock_is_resolved_and_one_without_a_wheel_is_said(
    checkout: SmallCheckout,
) -> None:
    said = checkout.run("--jax", "0.11.2", "--no-images", code=1)
    assert "pip chooses" in said
    assert "No matching distribution found for jax==0.11.2" in said
    assert f"{checkout.wheels} lacks packages" in said
    checkout.add_wheel("jax", "0.11.2")
    said = checkout.run("--jax", "0.11.2", "--no-images")
    assert "Ready: JAX 0.11.2" in said
    assert prints(checkout.found() / "bin" / "pathways-slurm") == "0.11.2"
