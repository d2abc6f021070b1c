# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The version stands in one place; the changelog keeps up with it."""

from pathlib import Path

import pathways_slurm

ROOT = Path(__file__).resolve().parents[3]


def test_the_changelog_has_a_section_for_the_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## [{pathways_slurm.__version__}]" in changelog
