# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The lock files: all that they are made from asks for, by hash, and from no particular place."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
IMAGES = tomllib.loads((ROOT / "enroot" / "images.toml").read_text(encoding="utf-8"))
DEVELOPERS = ROOT / "requirements.lock"
LOCKS = ROOT / "scripts" / "locks"

_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;]+)", re.MULTILINE)


def pins(lock: Path) -> dict[str, Version]:
    found = _PIN.findall(lock.read_text(encoding="utf-8"))
    return {canonicalize_name(name): Version(version) for name, version in found}


def requirements(*groups: list[str]) -> list[Requirement]:
    return [Requirement(text) for group in groups for text in group]


def listed(name: str) -> list[str]:
    lines = (LOCKS / f"{name}.in").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def unmet(wanted: list[Requirement], lock: Path) -> list[str]:
    locked = pins(lock)
    return [
        str(requirement)
        for requirement in wanted
        if (version := locked.get(canonicalize_name(requirement.name))) is None
        or version not in requirement.specifier
    ]


def every_lock() -> list[Path]:
    return [DEVELOPERS, *sorted(LOCKS.glob("*.lock"))]


def test_the_lock_satisfies_every_requirement_of_the_project() -> None:
    project = PROJECT["project"]
    wanted = requirements(
        PROJECT["build-system"]["requires"],
        project["dependencies"],
        *project["optional-dependencies"].values(),
        PROJECT["dependency-groups"]["dev"],
    )
    assert unmet(wanted, DEVELOPERS) == [], "run scripts/lock.sh"


def test_each_jax_has_locks_that_satisfy_what_its_environments_are_for() -> None:
    project = PROJECT["project"]
    extras = project["optional-dependencies"]
    emulator = str(pins(DEVELOPERS)["jax"])
    names = set()
    for version in {*IMAGES, emulator}:
        wanted = requirements(
            [f"jax=={version}"],
            project["dependencies"],
            extras["elastic"],
            extras["examples"],
            extras["emulator"] if version == emulator else [],
            listed("build"),
        )
        plain, maxtext = (LOCKS / f"{kind}-{version}.lock" for kind in ("jax", "maxtext-jax"))
        assert unmet(wanted, plain) == [], "run scripts/lock.sh"
        wanted += requirements(listed("maxtext"), listed("maxtext-alone"))
        assert unmet(wanted, maxtext) == [], "run scripts/lock.sh"
        names |= {plain.name, maxtext.name}
    assert {lock.name for lock in LOCKS.glob("*.lock")} == names


@pytest.mark.parametrize("lock", every_lock(), ids=lambda lock: lock.name)
def test_what_several_environments_have_is_of_one_version(lock: Path) -> None:
    common = pins(DEVELOPERS)
    differing = {
        name
        for name, version in pins(lock).items()
        if name in common and common[name] != version and name not in ("jax", "jaxlib")
    }
    assert differing == set(), "run scripts/lock.sh"


@pytest.mark.parametrize("lock", every_lock(), ids=lambda lock: lock.name)
def test_every_package_has_a_hash(lock: Path) -> None:
    blocks = re.split(r"\n(?=\S)", lock.read_text(encoding="utf-8").strip())
    assert len(blocks) == len(pins(lock))
    assert [block.splitlines()[0] for block in blocks if "--hash=sha256:" not in block] == []


@pytest.mark.parametrize("lock", every_lock(), ids=lambda lock: lock.name)
def test_the_lock_names_no_place(lock: Path) -> None:
    text = lock.read_text(encoding="utf-8")
    assert re.search(r"://|--index|--find-links|--extra-index", text) is None
