# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The runner of suites as a process, over suites of the test's own."""

import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

LIB = Path(__file__).resolve().parents[3] / "scripts" / "lib"
SECONDS = 90.0

SUITES = """
[good]
tests = "tests/good"
minutes = 1
[bad]
tests = "tests/bad"
minutes = 1
[other]
program = "other.py"
minutes = 1
"""

OTHER = """
import sys
file = sys.argv[1].partition("=")[2]
open(file, "w").write('<testsuite tests="2" skipped="1"/>')
"""


@dataclass
class Checkout:
    """A checkout with the real runner and suites of the test's own."""

    root: Path

    def write(self, file: str, text: str) -> None:
        path = self.root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "suites", *arguments],
            cwd=self.root,
            env={**os.environ, "PYTHONPATH": str(self.root / "scripts/lib")},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *arguments: str) -> tuple[int, str]:
        """Runs the runner; returns its exit code and what it printed."""
        process = self.start(*arguments)
        output, _ = process.communicate(timeout=SECONDS)
        return process.returncode, output


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    checkout = Checkout(tmp_path / "check out")
    shutil.copytree(
        LIB / "suites",
        checkout.root / "scripts/lib/suites",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    checkout.write("tests/suites.toml", SUITES)
    checkout.write("other.py", OTHER)
    checkout.write("tests/good/test_good.py", "def test_good():\n    pass\n")
    checkout.write("tests/bad/test_bad.py", "def test_bad():\n    assert False\n")
    return checkout


def rows(output: str) -> dict[str, list[str]]:
    """The rows of the table: suite → result and the rest."""
    cells = [
        [cell.strip() for cell in line.split("│")[1:-1]]
        for line in output.splitlines()
        if line.startswith("│")
    ]
    return {row[0]: row[1:] for row in cells if row[0]}


@pytest.fixture
def sleeping(checkout: Checkout) -> Checkout:
    """Its suite "good" hangs, once it has started a process in a session of its own."""
    checkout.write(
        "tests/good/test_good.py",
        "import subprocess, time\n"
        "def test_good():\n"
        "    child = subprocess.Popen(['sleep', '300'], start_new_session=True)\n"
        "    print('child', child.pid, flush=True)\n"
        "    time.sleep(300)\n",
    )
    return checkout


def test_the_table_and_the_closing_line_tell_all(checkout: Checkout) -> None:
    code, output = checkout.run()
    assert code == 1
    assert {name: row[:4] for name, row in rows(output).items()} == {
        "good": ["passed", "1", "0", "0"],
        "bad": ["failed", "0", "1", "0"],
        "other": ["passed", "1", "0", "1"],
    }
    assert output.splitlines()[-1] == "2 passed, 1 failed, 1 skipped"


def test_a_path_runs_its_suite_alone(checkout: Checkout) -> None:
    code, output = checkout.run("tests/good")
    assert code == 0
    assert list(rows(output)) == ["good"]
    assert output.splitlines()[-1] == "1 passed, 0 failed, 0 skipped"


def test_pytest_arguments_are_passed_on(checkout: Checkout) -> None:
    code, output = checkout.run("-k", "good")
    assert code == 0
    assert {name: row[0] for name, row in rows(output).items()} == {
        "good": "passed",
        "bad": "no test matches",
    }


def test_nothing_that_matches_is_no_success(checkout: Checkout) -> None:
    code, output = checkout.run("-k", "moon")
    assert code == 1
    assert output.splitlines()[-1] == "0 passed, 0 failed, 0 skipped"


def test_a_suite_without_tests_has_failed(checkout: Checkout) -> None:
    (checkout.root / "tests/bad/test_bad.py").unlink()
    code, output = checkout.run()
    assert code == 1
    assert rows(output)["bad"][0] == "failed"
    assert rows(output)["bad"][-1] == "has no tests"
    (checkout.root / "tests/bad").rmdir()
    assert checkout.run()[0] == 1


def test_what_cannot_run_fails_only_if_it_is_required(checkout: Checkout) -> None:
    needs = checkout.root / "scripts/lib/suites/needs.py"
    needs.write_text(needs.read_text() + "\nNEEDS['moon'] = lambda: 'there is no moon'\n")
    checkout.write(
        "tests/suites.toml",
        '[good]\ntests = "tests/good"\nminutes = 1\n'
        '[lunar]\ntests = "tests/lunar"\nminutes = 1\nneeds = ["moon"]\n',
    )
    code, output = checkout.run()
    assert code == 0
    assert rows(output)["lunar"][0] == "could not run"
    assert rows(output)["lunar"][-1] == "there is no moon"
    assert output.splitlines()[-1] == "1 passed, 0 failed, 0 skipped"

    assert checkout.run("--require", "good")[0] == 0
    for require in ("lunar", "all"):
        code, output = checkout.run("--require", require)
        assert code == 3
        assert output.splitlines()[-1] == "1 passed, 1 failed, 0 skipped"


def test_a_suite_is_set_up_before_it_runs(checkout: Checkout) -> None:
    declared = '[good]\ntests = "tests/good"\nminutes = 1\nsetup = ["./make.sh", "a thing"]\n'
    checkout.write("tests/suites.toml", declared)
    checkout.write("make.sh", '#!/bin/sh\necho "$1" >made\n')
    (checkout.root / "make.sh").chmod(0o755)
    test = "def test_good():\n    assert open('made').read() == 'a thing\\n'\n"
    checkout.write("tests/good/test_good.py", test)
    code, output = checkout.run()
    assert code == 0, output


@pytest.mark.parametrize(("options", "code"), [((), 1), (("--require", "good"), 3)])
def test_a_suite_that_is_not_set_up_fails_only_if_it_is_required(
    checkout: Checkout, options: tuple[str, ...], code: int
) -> None:
    declared = '[good]\ntests = "tests/good"\nminutes = 1\nsetup = ["make.sh"]\n'
    checkout.write("tests/suites.toml", declared)
    checkout.write("make.sh", "#!/bin/sh\nexit 4\n")
    (checkout.root / "make.sh").chmod(0o755)
    ended, output = checkout.run(*options)
    assert ended == code, output
    # The table breaks lines.
    assert "make.sh ended with exit code 4" in " ".join(re.sub("[│┃]", " ", output).split())
    assert "could not run" in output


def test_an_unknown_suite_is_an_error_with_the_known_ones(checkout: Checkout) -> None:
    code, output = checkout.run("--require", "moon")
    assert code == 2
    assert "there is no suite 'moon'; the suites are good, bad, other, or all" in output


def test_a_required_suite_is_stopped_when_its_budget_is_used_up(sleeping: Checkout) -> None:
    sleeping.write(
        "tests/suites.toml",
        '[good]\ntests = "tests/good"\nminutes = 0.08\n[other]\n'
        'program = "other.py"\nminutes = 1\n',
    )
    code, output = sleeping.run("--require", "good")
    assert code == 1
    assert rows(output)["good"][0] == "failed"
    assert "its budget of 0:05 was used up" in " ".join(output.replace("│", " ").split())
    assert rows(output)["other"][0] == "passed"


def test_all_suites_together_have_a_time_too_when_all_are_required(sleeping: Checkout) -> None:
    sleeping.write(
        "tests/suites.toml",
        'together = 0.08\n[good]\ntests = "tests/good"\nminutes = 1\n'
        '[other]\nprogram = "other.py"\nminutes = 1\n',
    )
    code, output = sleeping.run("--require", "all")
    assert code == 1
    assert (rows(output)["good"][0], rows(output)["other"][0]) == ("failed", "failed")
    said = " ".join(output.replace("│", " ").split())
    assert re.search(r"stopped after \d:\d\d: the time of all suites together was used up", said)


def test_a_process_left_behind_is_a_failure_and_is_ended(checkout: Checkout) -> None:
    checkout.write(
        "tests/good/test_good.py",
        "import subprocess\n"
        "def test_good():\n"
        "    subprocess.Popen(['sh', '-c', 'sleep 300 & echo child $! >&2'],"
        " start_new_session=True).wait()\n",
    )
    code, output = checkout.run("tests/good", "-s")
    assert code == 1
    assert "left 1 processes" in output
    assert gone(child_of(output))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_everything_and_shows_the_table(
    sleeping: Checkout, number: signal.Signals
) -> None:
    process = sleeping.start("-s")
    assert process.stdout is not None
    before = ""
    while "child" not in before:
        line = process.stdout.readline()
        assert line, before
        before += line
    process.send_signal(number)
    output, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 130
    assert rows(output)["good"][0] == "interrupted"
    assert rows(output)["bad"][0] == "not reached"
    assert gone(child_of(before))


def child_of(output: str) -> int:
    found = re.search(r"child (\d+)", output)
    assert found is not None, output
    return int(found[1])


def gone(pid: int) -> bool:
    """Whether a process has ended, be it that nobody has collected it yet."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
