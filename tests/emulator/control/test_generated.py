# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
import re
from pathlib import Path

import pytest
from tests.emulator.control import regenerate

PROTOBUF_BOUND = re.compile(r'"protobuf>=([0-9.]+)"')
COMPILER = re.compile(r"^# Protobuf Python Version: ([0-9.]+)$", re.MULTILINE)
GENERATED = regenerate.SOURCE_ROOT / "pathways_emulator"


@pytest.mark.parametrize("name", ["membership_pb2.py", "membership_pb2.pyi"])
def test_the_generated_files_are_those_of_the_proto_file(tmp_path: Path, name: str) -> None:
    regenerate.generate(tmp_path)
    assert (tmp_path / "pathways_emulator" / name).read_text() == (GENERATED / name).read_text()


def test_the_required_protobuf_can_load_the_generated_files() -> None:
    project = (regenerate.SOURCE_ROOT.parent / "pyproject.toml").read_text()
    bound = PROTOBUF_BOUND.search(project)
    compiler = COMPILER.search((GENERATED / "membership_pb2.py").read_text())
    assert bound is not None
    assert compiler is not None
    assert _version(bound[1]) >= _version(compiler[1])


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))
