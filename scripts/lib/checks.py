# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The static checks. Entry points: scripts/lint.sh, and the suite "static"."""

import argparse
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_PYTHON_FOLDERS = (
    *("supervisor", "emulator", "elastic", "enroot", "slurm"),
    *("scripts", "tests", "docs", "benchmarks"),
)
_SHELL_FOLDERS = ("scripts", "tests", "enroot", "slurm", ".ci", "docs")


@dataclass(frozen=True)
class Check:
    """A command that is silent about nothing: exit code 0 means clean."""

    name: str
    command: tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    """What a check said, in how many seconds."""

    check: Check
    clean: bool
    output: str
    seconds: float


def shell_files(root: Path) -> list[str]:
    """The shell files below root, relative to it: named *.sh, or bash or sh by their first line."""
    return sorted(
        str(path.relative_to(root))
        for folder in _SHELL_FOLDERS
        for path in _files(root / folder)
        if path.suffix == ".sh" or (not path.suffix and _has_shell_line(path))
    )


def _files(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        if "__pycache__" not in path.parts and path.is_file():
            yield path


def _has_shell_line(path: Path) -> bool:
    with path.open("rb") as file:
        first = file.readline(80).split()
    return (
        bool(first)
        and first[0].startswith(b"#!")
        and first[-1].rpartition(b"/")[2]
        in (
            b"bash",
            b"sh",
        )
    )


def checks(root: Path, tools: Path) -> list[Check]:
    """The checks for a checkout; ``tools`` is the directory of the environment's commands."""

    def tool(name: str) -> str:
        return str(tools / name)

    folders = tuple(folder for folder in _PYTHON_FOLDERS if _has_python(root / folder))
    shell = tuple(shell_files(root))
    return [
        Check("ruff check", (tool("ruff"), "check", "--quiet", ".")),
        Check("ruff format", (tool("ruff"), "format", "--diff", "--quiet", ".")),
        Check("mypy --strict", (tool("mypy"), "--strict", *folders)),
        Check("shellcheck", (tool("shellcheck"), *shell)),
        Check("shfmt", (tool("shfmt"), "--diff", *shell)),
        Check(
            "rules of the house",
            (tool("python"), "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", _HOUSE),
        ),
    ]


_HOUSE = "tests/unit/house"


def _has_python(folder: Path) -> bool:
    return any(path.suffix == ".py" for path in _files(folder))


def fixes(root: Path, tools: Path) -> list[Check]:
    """What puts right that which a program can put right."""
    return [
        Check("ruff check --fix", (str(tools / "ruff"), "check", "--fix", "--quiet", ".")),
        Check("ruff format", (str(tools / "ruff"), "format", "--quiet", ".")),
        Check("shfmt", (str(tools / "shfmt"), "--write", *shell_files(root))),
    ]


def run(check: Check, root: Path) -> Outcome:
    """Runs one check in the checkout."""
    started = time.monotonic()
    try:
        done = subprocess.run(
            check.command,
            cwd=root,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        clean, output = done.returncode == 0, done.stdout
    except OSError as error:
        clean, output = False, f"could not run {check.command[0]}: {error.strerror}"
    return Outcome(check, clean, output, time.monotonic() - started)


def write_junit(outcomes: Sequence[Outcome], file: Path) -> None:
    """Writes the report that the runner of suites reads: one test case a check."""
    failures = sum(not outcome.clean for outcome in outcomes)
    suite = ElementTree.Element(
        "testsuite", name="static", tests=str(len(outcomes)), failures=str(failures)
    )
    for outcome in outcomes:
        case = ElementTree.SubElement(
            suite, "testcase", name=outcome.check.name, time=f"{outcome.seconds:.3f}"
        )
        if not outcome.clean:
            ElementTree.SubElement(case, "failure", message="not clean")
    ElementTree.ElementTree(suite).write(file, encoding="utf-8", xml_declaration=True)


def main(arguments: Sequence[str], root: Path = _ROOT) -> int:
    """Runs the checks; returns 0 if all are clean, else 1."""
    parser = argparse.ArgumentParser(
        prog="scripts/lint.sh",
        description="Runs the static checks: ruff, mypy --strict, shellcheck, shfmt, the rules of "
        "the house. Exit codes: 0 clean, 1 not clean, 2 wrong usage.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--fix",
        action="store_true",
        help="first put right what a program can (default: change nothing)",
    )
    parser.add_argument(
        "--junit-xml", type=Path, metavar="FILE", help="also write a JUnit report (default: none)"
    )
    options = parser.parse_args(arguments)
    tools = Path(sys.prefix) / "bin"
    outcomes: list[Outcome] = []
    if options.fix:
        for check in fixes(root, tools):
            _show(run(check, root))
    for check in checks(root, tools):
        outcome = run(check, root)
        _show(outcome)
        outcomes.append(outcome)
    if options.junit_xml is not None:
        write_junit(outcomes, options.junit_xml)
    # A figure to watch, not a check: it depends on what else the machine is doing.
    subprocess.run([str(tools / "python"), "benchmarks/startup.py"], cwd=root, check=False)
    return 0 if all(outcome.clean for outcome in outcomes) else 1


def _show(outcome: Outcome) -> None:
    word = "ok  " if outcome.clean else "FAIL"
    print(f"{word} {outcome.check.name} ({outcome.seconds:.1f} s)", flush=True)
    if not outcome.clean:
        print(outcome.output.rstrip(), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
