# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Which suites a command line asks for, and what pytest gets to hear of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from suites.declaration import Suite

ALL = "all"

# pytest's options whose value is the next argument; such a value is no path to select by.
_VALUE_OPTIONS = frozenset(
    {"-c", "-k", "-m", "-n", "-o", "-p", "-r", "-W", "--basetemp", "--color", "--confcutdir"}
    | {"--deselect", "--durations", "--ignore", "--ignore-glob", "--junit-prefix"}
    | {"--log-cli-level", "--log-file", "--log-level", "--maxfail", "--pdbcls", "--rootdir"}
    | {"--show-capture", "--tb", "--timeout", "--verbosity"}
)


class UsageError(ValueError):
    """The command line is wrong; the message says what is valid."""


@dataclass(frozen=True)
class Selected:
    """A suite to run: the paths (or test ids) of it, and whether it must be able to run."""

    suite: Suite
    paths: tuple[str, ...]
    required: bool


@dataclass(frozen=True)
class Selection:
    """The suites to run, in order; ``options`` are for pytest; ``narrowed`` if there are any."""

    suites: tuple[Selected, ...]
    options: tuple[str, ...]

    @property
    def narrowed(self) -> bool:
        """The user asked for some tests only, so that a suite may well have none of them."""
        return bool(self.options) or any(
            selected.suite.tests is not None and selected.paths != (str(selected.suite.tests),)
            for selected in self.suites
        )


def select(
    suites: Sequence[Suite],
    require: Sequence[str],
    pytest_arguments: Sequence[str],
    directories: Sequence[Path],
) -> Selection:
    """Works out what to run.

    Without arguments for pytest, every suite. With paths among them, the suites that these are in,
    or that are in these; with options only, every suite of pytest's. A relative path is looked for
    in each of ``directories`` in turn. Raises UsageError.
    """
    names = [suite.name for suite in suites]
    if unknown := [name for name in require if name not in names and name != ALL]:
        raise UsageError(
            f"there is no suite {unknown[0]!r}; the suites are {', '.join(names)}, or {ALL}"
        )
    options, paths = _split(pytest_arguments, names, directories)
    chosen: list[Selected] = []
    for suite in suites:
        required = suite.name in require or ALL in require
        if suite.tests is None:
            if not pytest_arguments or suite.name in require:
                chosen.append(Selected(suite, (), required))
            continue
        inside = _inside(suite.tests, paths) if paths else (str(suite.tests),)
        if inside:
            chosen.append(Selected(suite, inside, required))
        elif suite.name in require:
            raise UsageError(f"suite {suite.name} is required, but the paths given leave it out")
    if paths and not any(selected.paths for selected in chosen):
        raise UsageError(f"{paths[0]} belongs to no suite; see scripts/test.sh --list")
    return Selection(tuple(chosen), tuple(options))


def _split(
    arguments: Sequence[str], names: Sequence[str], directories: Sequence[Path]
) -> tuple[list[str], list[str]]:
    """Parts options from paths. The paths come back absolute, test ids with them."""
    options: list[str] = []
    paths: list[str] = []
    previous = ""
    for argument in arguments:
        if argument.startswith("-") or previous in _VALUE_OPTIONS:
            options.append(argument)
        elif found := _find(argument, directories):
            paths.append(found)
        elif previous.startswith("--") and "=" not in previous:
            options.append(argument)  # the value of an option of a plugin
        else:
            hint = f" (a suite is chosen by its directory, tests/{argument})"
            raise UsageError(
                f"there is no file or directory {argument!r}{hint if argument in names else ''}"
            )
        previous = argument
    return options, paths


def _find(argument: str, directories: Sequence[Path]) -> str | None:
    file, separator, test = argument.partition("::")
    for directory in directories:
        path = directory / file
        if path.exists():
            return f"{path.resolve()}{separator}{test}"
    return None


def _inside(tests: Path, paths: Sequence[str]) -> tuple[str, ...]:
    """The paths as far as they concern one suite: a path above it stands for the whole of it."""
    suite = tests.resolve()
    inside: list[str] = []
    for path in paths:
        file = Path(path.partition("::")[0])
        if file == suite or file in suite.parents:
            return (str(tests),)
        if suite in file.parents:
            inside.append(path)
    return tuple(inside)
