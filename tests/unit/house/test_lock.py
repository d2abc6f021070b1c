# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""requirements.lock: all that pyproject.toml asks for, by hash, and from no particular place."""

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")

_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;]+)", re.MULTILINE)


def pins() -> dict[str, Version]:
    return {canonicalize_name(name): Version(version) for name, version in _PIN.findall(LOCK)}


def wanted() -> list[Requirement]:
    project = PROJECT["project"]
    groups = [
        PROJECT["build-system"]["requires"],
        project["dependencies"],
        *project["optional-dependencies"].values(),
        PROJECT["dependency-groups"]["dev"],
    ]
    return [Requirement(text) for group in groups for text in group]


def test_the_lock_satisfies_every_requirement_of_the_project() -> None:
    locked = pins()
    unmet = [
        str(requirement)
        for requirement in wanted()
        if (version := locked.get(canonicalize_name(requirement.name))) is None
        or version not in requirement.specifier
    ]
    assert unmet == [], "run scripts/lock.sh"


def test_every_package_has_a_hash() -> None:
    blocks = re.split(r"\n(?=\S)", LOCK.strip())
    assert len(blocks) == len(pins())
    assert [block.splitlines()[0] for block in blocks if "--hash=sha256:" not in block] == []


def test_the_lock_names_no_place() -> None:
    assert re.search(r"://|--index|--find-links|--extra-index", LOCK) is None
