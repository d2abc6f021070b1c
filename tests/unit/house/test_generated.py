# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Generated code is what the generator makes of its source."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
EMULATOR = ROOT / "emulator"


def test_generated_code_fits_its_proto_files(tmp_path: Path) -> None:
    protos = sorted(str(path.relative_to(EMULATOR)) for path in EMULATOR.rglob("*.proto"))
    assert protos
    subprocess.run(
        [
            *(sys.executable, "-P", "-m", "grpc_tools.protoc", f"--proto_path={EMULATOR}"),
            *(f"--python_out={tmp_path}", f"--pyi_out={tmp_path}", *protos),
        ],
        check=True,
    )
    generated = [path.relative_to(tmp_path) for path in tmp_path.rglob("*_pb2.py*")]
    assert len(generated) == 2 * len(protos)
    different = [
        str(path)
        for path in generated
        if (EMULATOR / path).read_bytes() != (tmp_path / path).read_bytes()
    ]
    assert different == [], "run scripts/generate.sh"
