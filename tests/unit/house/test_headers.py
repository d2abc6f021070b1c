# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Every source file says whose it is and under which licence."""

from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = (
    *("supervisor", "emulator", "elastic", "enroot", "slurm"),
    *("scripts", "tests", "docs", "benchmarks", ".ci"),
)
LINES = (
    "# SPDX-FileCopyrightText: The pathways-slurm authors",
    "# SPDX-License-Identifier: Apache-2.0",
)


def sources() -> Iterator[Path]:
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*"):
            generated = path.stem.endswith("_pb2")
            if (path.suffix in (".py", ".sh") or path.parent.name == ".ci") and not generated:
                yield path


def test_every_source_file_starts_with_the_two_lines() -> None:
    files = list(sources())
    assert files
    # A first line for the kernel, or for shellcheck, may stand before them.
    assert [
        str(path.relative_to(ROOT))
        for path in files
        if not set(LINES) <= set(path.read_text(encoding="utf-8").splitlines()[:4])
    ] == []
