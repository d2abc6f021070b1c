# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The rule of imports: rooms are entered from one side only."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("pathways_slurm", "pathways_emulator", "pathways_elastic")

# room → (where it is, the modules of the other rooms that it may import)
RULES = {
    "supervisor": ("supervisor", frozenset[str]()),
    "emulator": (
        "emulator",
        frozenset(
            {"pathways_slurm.topology", "pathways_slurm.runtime_files", "pathways_slurm.files"}
        ),
    ),
    # What tells where a service is, whether it answers, and what it announces.
    "elastic": (
        "elastic",
        frozenset(
            {
                "pathways_slurm.cluster_env",
                "pathways_slurm.notices",
                "pathways_slurm.paths",
                "pathways_slurm.probe",
            }
        ),
    ),
    # A cluster to run on: it knows nothing of the service.
    "slurm": ("slurm", frozenset({"pathways_slurm.topology", "pathways_slurm.files"})),
    # A user's program, and the demo that plays the user: they have the elastic library, and the
    # supervisor only through its command.
    "examples": ("docs", frozenset({"pathways_elastic"})),
    "scripts": ("scripts", frozenset({"pathways_slurm"})),
}

# What `pathways-slurm --help` must not load: all of it takes seconds, or is not installed where
# only the command line is.
HEAVY = frozenset({"jax", "jaxlib", "grpc", "google.protobuf", "orbax", "numpy", "pathwaysutils"})


@dataclass(frozen=True)
class Import:
    """One module of ours that a file names in an import, wherever in the file that stands."""

    file: Path
    line: int
    module: str


def imports_of(file: Path, package: str) -> Iterator[Import]:
    """Every import of a module of ours, also in functions and under TYPE_CHECKING.

    ``package`` is the dotted name of the package that the file is in, which relative imports need.
    `from a import b` counts as a.b as well as a if b may be a module, so it is given as a.b.
    """
    tree = ast.parse(file.read_text(encoding="utf-8"), str(file))
    for node in ast.walk(tree):
        for module in _names(node, package):
            if module.split(".")[0] in PACKAGES:
                yield Import(file, getattr(node, "lineno", 0), module)


def _names(node: ast.AST, package: str) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            parents = package.split(".")
            parents = parents[: len(parents) - (node.level - 1)]
            base = ".".join([*parents, base]) if base else ".".join(parents)
        yield from (f"{base}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.Call) and node.args:
        called = ast.unparse(node.func).rpartition(".")[2]
        name = node.args[0]
        if (
            called in ("import_module", "__import__")
            and isinstance(name, ast.Constant)
            and isinstance(name.value, str)
        ):
            yield name.value


def violations(folder: Path, allowed: frozenset[str]) -> list[str]:
    """The imports in a room that lead into another room and are not allowed."""
    own = {path.name for path in folder.iterdir() if path.name in PACKAGES}
    return [
        f"{found.file.relative_to(folder)}:{found.line} imports {found.module}"
        for file in sorted(folder.rglob("*.py"))
        for found in imports_of(file, ".".join(file.relative_to(folder).parent.parts))
        if found.module.split(".")[0] not in own
        and not any(found.module == name or found.module.startswith(f"{name}.") for name in allowed)
    ]


@pytest.mark.parametrize(
    "room", [room for room, (where, _) in RULES.items() if (ROOT / where).exists()]
)
def test_a_room_imports_only_what_it_may(room: str) -> None:
    where, allowed = RULES[room]
    assert violations(ROOT / where, allowed) == []


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_of_ours_is_in_a_room_with_a_rule(package: str) -> None:
    places = {path.parent.name for path in ROOT.glob(f"*/{package}")}
    assert places <= {where for where, _ in RULES.values()}


@pytest.mark.parametrize(
    "source",
    [
        "import pathways_emulator",
        "import pathways_emulator.server as server",
        "from pathways_emulator import server",
        "from pathways_emulator.proxy import session",
        "def f():\n    import pathways_emulator.server",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import pathways_elastic",
        "import importlib\nimportlib.import_module('pathways_emulator.server')",
        "__import__('pathways_elastic')",
        "try:\n    from pathways_elastic import manager\nexcept ImportError:\n    pass",
    ],
)
def test_every_form_of_a_forbidden_import_is_found(source: str, tmp_path: Path) -> None:
    package = tmp_path / "pathways_slurm"
    package.mkdir()
    (package / "module.py").write_text(source)
    assert len(violations(tmp_path, frozenset())) == 1


def test_the_emulator_gets_topology_and_nothing_else_of_the_supervisor(tmp_path: Path) -> None:
    package = tmp_path / "pathways_emulator"
    package.mkdir()
    (package / "module.py").write_text(
        "from pathways_slurm import topology\n"
        "from pathways_slurm.topology import hosts\n"
        "import pathways_slurm.topology\n"
        "from pathways_slurm import topology_of_my_own\n"
        "from . import server\n"
        "from .. import pathways_slurm\n"
        "import grpc, jax\n"
    )
    found = violations(tmp_path, RULES["emulator"][1])
    assert found == [
        "pathways_emulator/module.py:4 imports pathways_slurm.topology_of_my_own",
    ]


def test_relative_imports_are_resolved(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text("from . import a\nfrom .b import c\nfrom ..d import e\n")
    found = [found.module for found in imports_of(file, "pathways_slurm.cli")]
    assert found == ["pathways_slurm.cli.a", "pathways_slurm.cli.b.c", "pathways_slurm.d.e"]


def test_help_loads_nothing_heavy() -> None:
    program = (
        "import json, sys\n"
        "sys.argv = ['pathways-slurm', '--help']\n"
        "from pathways_slurm.cli import main\n"
        "try:\n"
        "    main()\n"
        "except SystemExit as exit:\n"
        "    assert not exit.code, exit.code\n"
        "print()\n"
        "print(json.dumps(sorted(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Usage" in done.stdout
    loaded = set(json.loads(done.stdout.splitlines()[-1]))
    assert "pathways_slurm.cli" in loaded
    assert loaded & (HEAVY | {"pathways_emulator", "pathways_elastic"}) == set()


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        # Clients lower their programs themselves; JAX would take most of the proxy's start.
        ("pathways_emulator.proxy.server", frozenset({"jax", "orbax", "pathwaysutils"})),
        ("pathways_emulator.worker", HEAVY - {"grpc", "google.protobuf"}),
        ("pathways_emulator.resource_manager", HEAVY - {"grpc", "google.protobuf"}),
        ("pathways_slurm.supervise", HEAVY | {"asyncio", "rich"}),
    ],
)
def test_what_starts_with_a_service_starts_fast(module: str, heavy: frozenset[str]) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-P", "-c"),
            f"import json, sys, {module}\nprint(json.dumps(sorted(sys.modules)))",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(json.loads(done.stdout))
    assert module in loaded
    assert loaded & heavy == set()
