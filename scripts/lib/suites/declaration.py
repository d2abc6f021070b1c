# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The suites as tests/suites.toml declares them."""

import tomllib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_KEYS = frozenset({"about", "tests", "program", "minutes", "needs", "ordinary_user", "setup"})


# Beside the suites' tables.
_TOGETHER = "together"


class DeclarationError(ValueError):
    """The file of suites is wrong; the message names the suite, the value and what is valid."""


@dataclass(frozen=True)
class Suite:
    """One suite. Exactly one of ``tests`` and ``program`` is set.

    ``tests`` is the directory of its pytest tests; ``program``, the Python file that runs a suite
    which is not pytest's; ``budget_s``, the seconds it may take; ``needs``, what it needs of the
    machine, as named in needs.py; ``ordinary_user``, that root runs it as another user; ``setup``,
    the command that makes what its tests use, run by the same user before its time starts.
    """

    name: str
    about: str
    budget_s: float
    tests: Path | None = None
    program: Path | None = None
    needs: tuple[str, ...] = ()
    ordinary_user: bool = False
    setup: tuple[str, ...] = ()


@dataclass(frozen=True)
class Declared:
    """All suites, in order, and the seconds that they may take together; None: no limit."""

    suites: tuple[Suite, ...]
    together_s: float | None = None


def load(file: Path, root: Path, known_needs: Collection[str]) -> Declared:
    """Reads the suites of a TOML file, in its order.

    ``root`` is what the directories in the file are relative to. Raises DeclarationError if the
    file cannot be read or says something invalid.
    """
    try:
        tables = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise DeclarationError(f"could not read {file}: {error}") from error
    together = tables.pop(_TOGETHER, None)
    if not tables:
        raise DeclarationError(f"{file} declares no suite")
    if together is not None:
        together = _seconds(_TOGETHER, together)
    suites = tuple(_suite(name, table, root, known_needs) for name, table in tables.items())
    return Declared(suites, together)


def _seconds(what: str, minutes: Any) -> float:
    if not isinstance(minutes, int | float) or isinstance(minutes, bool) or minutes <= 0:
        raise DeclarationError(f"{what} must be a positive number, got {minutes!r}")
    return minutes * 60.0


def _suite(name: str, table: Any, root: Path, known_needs: Collection[str]) -> Suite:
    if not isinstance(table, dict):
        raise DeclarationError(f"suite {name}: expected a table, got {table!r}")
    if unknown := sorted(table.keys() - _KEYS):
        raise DeclarationError(
            f"suite {name}: unknown keys {', '.join(unknown)}; valid are {', '.join(sorted(_KEYS))}"
        )
    tests, program = table.get("tests"), table.get("program")
    if (tests is None) == (program is None):
        raise DeclarationError(f"suite {name}: give either tests or program")
    budget_s = _seconds(f"suite {name}: minutes", table.get("minutes"))
    needs = table.get("needs", [])
    if unknown := sorted(set(needs) - set(known_needs)):
        raise DeclarationError(
            f"suite {name}: unknown needs {', '.join(unknown)}; "
            f"valid are {', '.join(sorted(known_needs))}"
        )
    ordinary_user = table.get("ordinary_user", False)
    if not isinstance(ordinary_user, bool) or (ordinary_user and tests is None):
        raise DeclarationError(
            f"suite {name}: ordinary_user must be true or false, and goes with tests only, "
            f"got {ordinary_user!r}"
        )
    setup = table.get("setup", [])
    if not isinstance(setup, list) or not all(isinstance(word, str) for word in setup):
        raise DeclarationError(
            f"suite {name}: setup must be a list of words, the first a program of the checkout, "
            f"got {setup!r}"
        )
    return Suite(
        name=name,
        about=str(table.get("about", "")),
        budget_s=budget_s,
        tests=None if tests is None else root / tests,
        program=None if program is None else root / program,
        needs=tuple(needs),
        ordinary_user=ordinary_user,
        setup=tuple(setup),
    )
