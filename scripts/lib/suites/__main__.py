# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the suites, one after the other, each as a process of its own."""

import argparse
import math
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.rule import Rule

from suites import declaration, install, needs, ordinary, process, report, selection, setup
from suites.outcome import Counts, Ended, ExitCode, Result, State, exit_code, judge, minutes

_ROOT = Path(__file__).resolve().parents[3]
_SUITES = Path("tests/suites.toml")

# A suite that is not required may take longer on a slow machine; past this it hangs.
_HANG_FACTOR = 3

_USAGE = """\
scripts/test.sh [--require SUITE|all]... [--enroot PATH] [--list] [pytest arguments]

Runs every test suite that can run on this machine and says which could not, and why. The first run
sets up .venv; see CONTRIBUTING.md.
"""

_EPILOG = """\
Anything else is for pytest. A path chooses the suites that it is in; with any argument for pytest,
only pytest's suites run:
  scripts/test.sh tests/unit
  scripts/test.sh -k topology
  scripts/test.sh tests/unit/test_topology.py::test_name -x

Exit codes: 0 all that ran passed; 1 something failed; 2 wrong usage; 3 a required suite could not
run; 130 interrupted. Ctrl-C ends the suite at hand in order; once more kills it.
"""


def main(arguments: Sequence[str]) -> int:
    """Runs what the command line asks for and returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="scripts/test.sh",
        usage=_USAGE,
        epilog=_EPILOG,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--require",
        action="append",
        default=[],
        metavar="SUITE|all",
        help="fail if this suite cannot run, or exceeds its budget (default: none)",
    )
    parser.add_argument(
        "--enroot",
        type=Path,
        metavar="PATH",
        help="the enroot that tests run containers with (default: the stand-in for it)",
    )
    parser.add_argument("--list", action="store_true", help="show the suites and end")
    known, pytest_arguments = parser.parse_known_args(arguments)
    out = report.console()
    try:
        declared = declaration.load(_ROOT / _SUITES, _ROOT, needs.NEEDS)
        suites = declared.suites
        chosen = selection.select(suites, known.require, pytest_arguments, (Path.cwd(), _ROOT))
    except (declaration.DeclarationError, selection.UsageError) as error:
        print(f"scripts/test.sh: error: {error}", file=sys.stderr)
        return ExitCode.USAGE
    if known.list:
        report.print_suites(out, suites)
        return ExitCode.OK
    # Not among the arguments for pytest, which would narrow what is run.
    settings = () if known.enroot is None else (f"--enroot={known.enroot.absolute()}",)
    # Only those who ask for everything have a clock running against them.
    together_s = declared.together_s if selection.ALL in known.require else None
    results = _run(chosen, settings, together_s, out)
    report.print_results(out, results)
    return exit_code(results)


def _run(
    chosen: selection.Selection, settings: Sequence[str], together_s: float | None, out: Console
) -> list[Result]:
    results: list[Result] = []
    deadline = math.inf if together_s is None else time.monotonic() + together_s
    for selected in chosen.suites:
        suite, required = selected.suite, selected.required
        if any(result.state is State.INTERRUPTED for result in results):
            results.append(Result(suite, State.NOT_REACHED, required))
        elif (left_s := deadline - time.monotonic()) <= 0:
            note = "the time of all suites together was used up"
            results.append(
                Result(suite, State.FAILED, required, counts=Counts(failed=1), notes=(note,))
            )
        elif (reason := _lacking(suite, required=required, out=out)) is not None:
            counts = Counts(failed=1 if required else 0)
            results.append(Result(suite, State.COULD_NOT, required, counts=counts, notes=(reason,)))
        elif suite.tests is not None and not suite.tests.is_dir():
            note = f"has no tests: {suite.tests} is not there"
            results.append(
                Result(suite, State.FAILED, required, counts=Counts(failed=1), notes=(note,))
            )
        else:
            out.print(Rule(f"{suite.name}: {suite.about} (budget {minutes(suite.budget_s)})"))
            try:
                ended = _run_one(selected, (*settings, *chosen.options), left_s)
            except ordinary.UserError as error:
                counts = Counts(failed=1)
                results.append(
                    Result(suite, State.FAILED, required, counts=counts, notes=(str(error),))
                )
                continue
            except setup.SetupError as error:
                counts = Counts(failed=1 if required else 0)
                results.append(
                    Result(suite, State.COULD_NOT, required, counts=counts, notes=(str(error),))
                )
                continue
            results.append(judge(suite, ended, required=required, narrowed=chosen.narrowed))
    return results


def _lacking(suite: declaration.Suite, *, required: bool, out: Console) -> str | None:
    """Why the suite can't run here. For one that is required, root installs what it lacks."""
    reason = needs.lacking(suite.needs)
    if reason is None or not required or os.geteuid() != 0:
        return reason
    packages = [package for need in suite.needs for package in needs.PACKAGES.get(need, ())]
    if not packages:
        return reason
    out.print(f"{suite.name}: {reason}; installing them")
    problem = install.install(packages)
    return needs.lacking(suite.needs) if problem is None else f"{reason} ({problem})"


def _run_one(selected: selection.Selected, options: Sequence[str], left_s: float) -> Ended:
    suite = selected.suite
    command, uid = _command(selected, options), None
    if suite.ordinary_user and os.geteuid() == 0:
        # Before the suite's time starts: the first set-up takes a minute.
        uid = ordinary.prepare(_ROOT)
        command = ordinary.command(_ROOT, ["-P", "-m", "pytest", *options, *selected.paths])
    # Before it too: it fetches what the tests use.
    left_s -= setup.run(suite, _ROOT, as_user=uid is not None, limit_s=left_s)
    limit_s = min(left_s, suite.budget_s * (1 if selected.required else _HANG_FACTOR))
    return process.run(command, cwd=_ROOT, limit_s=limit_s, uid=uid)


def _command(selected: selection.Selected, options: Sequence[str]) -> list[str]:
    if selected.suite.program is not None:
        return [sys.executable, str(selected.suite.program)]
    return [sys.executable, "-P", "-m", "pytest", *options, *selected.paths]


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    # Whoever started us may have had SIGINT ignored (a shell's background job), which the suites
    # would inherit; being told to end by other means is no different.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGHUP, _interrupt)
    os.environ.setdefault("COLUMNS", "100")
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(ExitCode.INTERRUPTED)
