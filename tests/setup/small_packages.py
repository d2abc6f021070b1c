# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Packages that a real pip installs in a second, without a network."""

import hashlib
import zipfile
from pathlib import Path

# The project is held in the middle of its installation while there is a gate that nobody opens.
_BACKEND = """
import os, zipfile

WHEEL = "Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"

COMMANDS = "[console_scripts]\\npathways-slurm = jax:main\\n"

def get_requires_for_build_editable(config_settings=None):
    return []

def build_editable(directory, config_settings=None, metadata_directory=None):
    gate = os.path.join(os.getcwd(), "gate")
    if os.path.exists(gate):
        with open(gate) as wait:
            wait.read()
    name = "project-1-py3-none-any.whl"
    info = "project-1.dist-info"
    with zipfile.ZipFile(os.path.join(directory, name), "w") as wheel:
        wheel.writestr("project.pth", os.getcwd())
        wheel.writestr(info + "/METADATA", "Metadata-Version: 2.1\\nName: project\\nVersion: 1\\n")
        wheel.writestr(info + "/WHEEL", WHEEL)
        wheel.writestr(info + "/entry_points.txt", COMMANDS)
        wheel.writestr(info + "/RECORD", "")
    return name
"""

_PYPROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "project"
version = "1"
"""


def make_project(root: Path) -> None:
    """Makes a checkout a project, whose installation waits for the FIFO ``gate`` if there is one.

    Its command pathways-slurm prints the version of the package jax.
    """
    (root / "backend.py").write_text(_BACKEND)
    (root / "pyproject.toml").write_text(_PYPROJECT)


def make_wheel(folder: Path, name: str, version: str) -> str:
    """Makes a package of one module that knows its version; returns its lines for a lock file."""
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr(f"{name}.py", f"version = {version!r}\n\n\ndef main():\n    print(version)\n")
        file.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
        file.writestr(
            f"{info}/WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        file.writestr(f"{info}/RECORD", "")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    return f"{name}=={version} \\\n    --hash=sha256:{digest}\n"
