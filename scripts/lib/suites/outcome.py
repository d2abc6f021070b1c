# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What became of a suite, and of a run of suites."""

import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from pathlib import Path

from suites.declaration import Suite

# pytest's exit codes: https://docs.pytest.org/en/stable/reference/exit-codes.html
PYTEST_OK = 0
PYTEST_TESTS_FAILED = 1
PYTEST_NO_TESTS = 5


class State(StrEnum):
    """One word for the table."""

    PASSED = "passed"
    FAILED = "failed"
    COULD_NOT = "could not run"
    NO_MATCH = "no test matches"
    INTERRUPTED = "interrupted"
    NOT_REACHED = "not reached"


class ExitCode(IntEnum):
    """How scripts/test.sh ends."""

    OK = 0
    FAILED = 1
    USAGE = 2
    COULD_NOT = 3
    INTERRUPTED = 130


@dataclass(frozen=True)
class Counts:
    """Numbers of tests."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0


@dataclass(frozen=True)
class Ended:
    """How the process of a suite ended: what ``judge`` judges.

    ``exit_code`` as Popen has it; ``counts`` None if it left no readable report; ``left_behind``,
    the command lines of processes that it started and did not end.
    """

    exit_code: int
    seconds: float
    counts: Counts | None
    stopped_at_limit: bool = False
    interrupted: bool = False
    left_behind: tuple[str, ...] = ()


@dataclass(frozen=True)
class Result:
    """A row of the table."""

    suite: Suite
    state: State
    required: bool = False
    seconds: float = 0.0
    counts: Counts = Counts()
    notes: tuple[str, ...] = ()


def judge(suite: Suite, ended: Ended, *, required: bool, narrowed: bool) -> Result:
    """Decides how a suite that ran did.

    A fault of the suite as a whole (no tests, its budget, a crash, processes left behind) counts as
    one failed test, so that the sum of failures is zero if and only if all is well.
    """
    counts = ended.counts or Counts()
    faults: list[str] = []
    notes: list[str] = []
    no_tests = counts == Counts()
    over = ended.seconds > suite.budget_s
    budget = f"its budget of {minutes(suite.budget_s)}"
    if ended.interrupted:
        return Result(suite, State.INTERRUPTED, required, ended.seconds, counts)
    if ended.stopped_at_limit:
        limit = budget if over else "the time of all suites together"
        faults.append(f"stopped after {minutes(ended.seconds)}: {limit} was used up")
    elif over and required:
        faults.append(f"took longer than {budget}")
    elif over:
        notes.append(f"took longer than {budget}")
    if not ended.stopped_at_limit:
        if ended.counts is None and ended.exit_code != PYTEST_NO_TESTS:
            faults.append(f"left no report; {exit_words(ended.exit_code)}")
        elif no_tests and narrowed and ended.exit_code in (PYTEST_OK, PYTEST_NO_TESTS):
            if not required:
                return Result(suite, State.NO_MATCH, required, ended.seconds, counts)
            faults.append("is required, but none of its tests matches")
        elif no_tests and ended.exit_code in (PYTEST_OK, PYTEST_NO_TESTS):
            faults.append("has no tests")
        elif ended.exit_code not in (PYTEST_OK, PYTEST_TESTS_FAILED) or (
            ended.exit_code == PYTEST_TESTS_FAILED and not counts.failed
        ):
            faults.append(exit_words(ended.exit_code))
    if ended.left_behind:
        faults.append(
            f"left {len(ended.left_behind)} processes behind, which were ended: "
            + "; ".join(ended.left_behind)
        )
    failed = counts.failed + len(faults)
    return Result(
        suite,
        State.FAILED if failed else State.PASSED,
        required,
        ended.seconds,
        Counts(counts.passed, failed, counts.skipped),
        (*faults, *notes),
    )


def exit_code(results: Sequence[Result]) -> ExitCode:
    """The exit code of a run. That something failed outweighs that something could not run."""
    states = {result.state for result in results}
    if states & {State.INTERRUPTED, State.NOT_REACHED}:
        return ExitCode.INTERRUPTED
    if State.FAILED in states:
        return ExitCode.FAILED
    if any(result.required and result.state is State.COULD_NOT for result in results):
        return ExitCode.COULD_NOT
    # Nothing that could be called a test ran: that is no success.
    return ExitCode.OK if State.PASSED in states else ExitCode.FAILED


def read_junit(file: Path) -> Counts | None:
    """Adds up a JUnit report. None if there is none, or half of one. Errors count as failures."""
    try:
        suites = list(ElementTree.parse(file).iter("testsuite"))
        tests, failures, errors, skipped = (
            sum(int(suite.get(key, "0")) for suite in suites)
            for key in ("tests", "failures", "errors", "skipped")
        )
    except (OSError, ElementTree.ParseError, ValueError):
        return None
    failed = failures + errors
    return Counts(passed=max(0, tests - failed - skipped), failed=failed, skipped=skipped)


def exit_words(code: int) -> str:
    """Says how a process ended, from the exit code that Popen gives."""
    return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"


def minutes(seconds: float) -> str:
    """ "0:07" or "12:34"."""
    whole = round(seconds)
    return f"{whole // 60}:{whole % 60:02d}"
