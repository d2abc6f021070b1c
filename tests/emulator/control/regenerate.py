# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Writes membership_pb2.py and .pyi anew from membership.proto: run it after changing that."""

import subprocess
import sys
from pathlib import Path

SOURCE_ROOT = Path(__file__).parents[3] / "emulator"
PROTO = "pathways_emulator/membership.proto"


def generate(target: Path) -> None:
    """Writes the generated files below `target`.

    Raises:
        subprocess.CalledProcessError: The compiler failed; it has said why on standard error.
    """
    compiler = [sys.executable, "-m", "grpc_tools.protoc"]
    outputs = [f"--python_out={target}", f"--pyi_out={target}"]
    subprocess.run([*compiler, f"-I{SOURCE_ROOT}", *outputs, PROTO], check=True)


if __name__ == "__main__":
    generate(SOURCE_ROOT)
