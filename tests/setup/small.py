# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""A checkout with the real setup_env.sh, whose packages are small: real pip, no network.

Its JAX knows its version, and that is all. The project's installation waits at a gate, if there is
one: that is how a test holds a set-up in the middle.
"""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from tests.setup.small_packages import make_project, make_wheel

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 600.0
REGISTRY = "us-docker.pkg.dev/cloud-tpu-v2-images/pathways"
JAX = "0.11.1"

# What setup_env.sh runs or reads, but for lists of packages.
PARTS = (
    *("scripts/setup_env.sh", "scripts/lib", "enroot", "requirements.lock"),
    *("supervisor/pathways_slurm/__init__.py", "supervisor/pathways_slurm/images.py"),
    "supervisor/pathways_slurm/emulator_image.py",
    "supervisor/pathways_slurm/jax_version.py",
)


class SmallCheckout:
    """A checkout in ``place``, with a directory of wheels and a registry of images beside it."""

    def __init__(self, place: Path) -> None:
        self.root = place / "checkout"
        self.wheels = place / "wheels"
        self.registry = place / "registry"
        self.containers = place / "containers"
        for part in PARTS:
            target = self.root / part
            target.parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / part).is_dir():
                shutil.copytree(ROOT / part, target)
            else:
                shutil.copy(ROOT / part, target)
        make_project(self.root)
        (self.root / "scripts" / "locks").mkdir()
        self.wheels.mkdir()
        self.lock(f"jax-{JAX}", self.add_wheel("jax", JAX))
        self.lock(
            f"maxtext-jax-{JAX}", self.add_wheel("jax", JAX) + self.add_wheel("maxtext", "0.2.5")
        )
        self.requirements("build", self.add_wheel("builder", "1.0").split()[0])
        for image in ("server", "proxy_server"):
            file = self.registry / REGISTRY / image / f"jax-{JAX}.sqsh"
            file.parent.mkdir(parents=True)
            file.write_text(image)

    @property
    def environments(self) -> Path:
        return self.root / "environments"

    def add_wheel(self, name: str, version: str) -> str:
        """Makes a package that knows its version; returns its lines for a lock."""
        return make_wheel(self.wheels, name, version)

    def lock(self, name: str, lines: str) -> None:
        (self.root / "scripts" / "locks" / f"{name}.lock").write_text(lines)

    def requirements(self, name: str, lines: str) -> None:
        (self.root / "scripts" / "locks" / f"{name}.in").write_text(f"{lines}\n")

    def start(self, *options: str) -> subprocess.Popen[str]:
        """Starts a set-up, from a directory that has nothing to do with it."""
        return subprocess.Popen(
            [self.root / "scripts" / "setup_env.sh", "--wheels", self.wheels, *options],
            cwd="/",
            env={
                "PATH": os.pathsep.join(
                    [
                        str(Path(sys.base_prefix) / "bin"),
                        str(ROOT / "tests" / "standins"),
                        os.environ["PATH"],
                    ]
                ),
                # Nothing can be written there.
                "HOME": "/proc/self",
                "ENROOT_STANDIN_REGISTRY": str(self.registry),
                "PATHWAYS_CONTAINER_DIR": str(self.containers),
                # Some interpreters do not find their library without it.
                "LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", ""),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *options: str, code: int = 0) -> str:
        """Runs a set-up to its end; returns what it said."""
        return finish(self.start(*options), code)

    def found(self, function: str = "environment") -> Path:
        """The environment that services, or workloads, run with."""
        done = subprocess.run(
            [
                "bash",
                "-euo",
                "pipefail",
                "-c",
                'for part in common installation; do source "$0/$part.sh"; done;'
                f' installation::{function} "$1"',
                self.root / "scripts" / "lib",
                self.root,
            ],
            capture_output=True,
            text=True,
            check=True,
        )
        return Path(done.stdout.removesuffix("\n"))


def finish(process: subprocess.Popen[str], code: int = 0) -> str:
    """Waits for a set-up; returns what it said."""
    try:
        output, said = process.communicate(timeout=SECONDS)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    assert (process.returncode, output) == (code, ""), said
    return said
