# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The decisions of the runner of suites: what is declared, what is chosen, how it is judged."""

from pathlib import Path

import pytest

from suites import install, ordinary
from suites.declaration import DeclarationError, Suite, load
from suites.needs import NEEDS, lacking
from suites.outcome import (
    Counts,
    Ended,
    ExitCode,
    Result,
    State,
    exit_code,
    judge,
    minutes,
    read_junit,
)
from suites.selection import Selection, UsageError, select

ROOT = Path(__file__).resolve().parents[3]
BUDGET_S = 60.0


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for folder in ("tests/unit/deep", "tests/e2e", "docs"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "tests/unit/test_a.py").touch()
    (tmp_path / "tests/e2e/test_b.py").touch()
    return tmp_path


@pytest.fixture
def suites(root: Path) -> tuple[Suite, ...]:
    return (
        Suite("static", "checks", BUDGET_S, program=root / "checks.py"),
        Suite("unit", "units", BUDGET_S, tests=root / "tests/unit"),
        Suite("e2e", "whole", BUDGET_S, tests=root / "tests/e2e"),
    )


def names(selection: Selection) -> list[str]:
    return [selected.suite.name for selected in selection.suites]


class TestDeclaration:
    def load(self, tmp_path: Path, text: str) -> tuple[Suite, ...]:
        file = tmp_path / "suites.toml"
        file.write_text(text)
        return load(file, tmp_path, ["linux"]).suites

    def test_order_budget_and_needs_are_read(self, tmp_path: Path) -> None:
        suites = self.load(
            tmp_path,
            '[b]\nabout = "bees"\ntests = "tests/b"\nminutes = 1.5\nneeds = ["linux"]\n'
            '[a]\nprogram = "a.py"\nminutes = 2\n',
        )
        assert suites == (
            Suite("b", "bees", 90.0, tests=tmp_path / "tests/b", needs=("linux",)),
            Suite("a", "", 120.0, program=tmp_path / "a.py"),
        )

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "declares no suite"),
            ("[a", "could not read"),
            ("together = 57", "declares no suite"),
            ('together = "57"\n[a]', "together must be a positive number, got '57'"),
            ("a = 1", "suite a: expected a table, got 1"),
            ("[a]\nminutes = 1", "suite a: give either tests or program"),
            ('[a]\ntests = "t"\nprogram = "p"\nminutes = 1', "give either tests or program"),
            ('[a]\ntests = "t"', "minutes must be a positive number, got None"),
            ('[a]\ntests = "t"\nminutes = 0', "minutes must be a positive number, got 0"),
            ('[a]\ntests = "t"\nminutes = true', "minutes must be a positive number, got True"),
            (
                '[a]\ntests = "t"\nminutes = 1\nneeds = ["moon"]',
                "unknown needs moon; valid are linux",
            ),
            ('[a]\ntests = "t"\nminutes = 1\ncolour = 1', "unknown keys colour; valid are about"),
        ],
    )
    def test_a_fault_is_named(self, tmp_path: Path, text: str, message: str) -> None:
        with pytest.raises(DeclarationError, match=message):
            self.load(tmp_path, text)

    def test_only_tests_can_be_run_as_another_user(self, tmp_path: Path) -> None:
        (suite,) = self.load(tmp_path, '[a]\ntests = "t"\nminutes = 1\nordinary_user = true\n')
        assert suite.ordinary_user
        (suite,) = self.load(tmp_path, '[a]\ntests = "t"\nminutes = 1\n')
        assert not suite.ordinary_user
        for wrong in ('tests = "t"\nordinary_user = "yes"', 'program = "p"\nordinary_user = true'):
            with pytest.raises(DeclarationError, match="ordinary_user must be true or false"):
                self.load(tmp_path, f"[a]\nminutes = 1\n{wrong}\n")

    def test_a_setup_is_a_list_of_words(self, tmp_path: Path) -> None:
        (suite,) = self.load(tmp_path, '[a]\ntests = "t"\nminutes = 1\nsetup = ["a", "--b"]\n')
        assert suite.setup == ("a", "--b")
        for wrong in ('"a --b"', "[1]"):
            with pytest.raises(DeclarationError, match="setup must be a list of words"):
                self.load(tmp_path, f'[a]\ntests = "t"\nminutes = 1\nsetup = {wrong}\n')

    def test_the_suites_of_this_project_leave_three_minutes_of_an_hour_to_set_up(self) -> None:
        declared = load(ROOT / "tests/suites.toml", ROOT, NEEDS)
        assert declared.together_s is not None
        assert declared.together_s <= 57 * 60

    def test_every_folder_of_tests_belongs_to_a_suite(self) -> None:
        suites = load(ROOT / "tests/suites.toml", ROOT, NEEDS).suites
        declared = {suite.tests for suite in suites}
        folders = {
            file.relative_to(ROOT / "tests").parts[0] for file in ROOT.glob("tests/**/test_*.py")
        }
        assert {ROOT / "tests" / folder for folder in folders} <= declared


class TestSelection:
    def test_all_without_arguments(self, suites: tuple[Suite, ...], root: Path) -> None:
        selection = select(suites, [], [], [root])
        assert names(selection) == ["static", "unit", "e2e"]
        assert not selection.narrowed

    def test_options_leave_out_what_is_not_pytest(
        self, suites: tuple[Suite, ...], root: Path
    ) -> None:
        selection = select(suites, [], ["-k", "tests", "-x"], [root])
        assert names(selection) == ["unit", "e2e"]
        assert selection.options == ("-k", "tests", "-x")
        assert selection.narrowed

    def test_a_path_chooses_its_suite(self, suites: tuple[Suite, ...], root: Path) -> None:
        selection = select(suites, [], ["tests/unit/test_a.py::test_x[1]", "-x"], [root])
        assert names(selection) == ["unit"]
        assert selection.suites[0].paths == (f"{root}/tests/unit/test_a.py::test_x[1]",)
        assert selection.options == ("-x",)

    def test_a_path_is_looked_for_where_the_user_is_first(
        self, suites: tuple[Suite, ...], root: Path
    ) -> None:
        selection = select(suites, [], ["test_b.py"], [root / "tests/e2e", root])
        assert names(selection) == ["e2e"]

    @pytest.mark.parametrize(
        ("path", "expected"), [("tests", ["unit", "e2e"]), ("tests/e2e", ["e2e"])]
    )
    def test_a_folder_stands_for_the_suites_in_it(
        self, suites: tuple[Suite, ...], root: Path, path: str, expected: list[str]
    ) -> None:
        selection = select(suites, [], [path], [root])
        assert names(selection) == expected
        assert not selection.narrowed

    @pytest.mark.parametrize(
        ("require", "expected"),
        [([], [False] * 3), (["e2e"], [False, False, True]), (["all"], [True] * 3)],
    )
    def test_require(
        self, suites: tuple[Suite, ...], root: Path, require: list[str], expected: list[bool]
    ) -> None:
        selection = select(suites, require, [], [root])
        assert [selected.required for selected in selection.suites] == expected

    @pytest.mark.parametrize(
        ("require", "arguments", "message"),
        [
            (["moon"], [], "no suite 'moon'; the suites are static, unit, e2e, or all"),
            ([], ["tests/moon"], "no file or directory 'tests/moon'"),
            ([], ["unit"], "chosen by its directory, tests/unit"),
            ([], ["docs"], "docs belongs to no suite"),
            (["e2e"], ["tests/unit"], "suite e2e is required, but the paths given leave it out"),
        ],
    )
    def test_a_wrong_command_line_is_explained(
        self,
        suites: tuple[Suite, ...],
        root: Path,
        require: list[str],
        arguments: list[str],
        message: str,
    ) -> None:
        with pytest.raises(UsageError, match=message):
            select(suites, require, arguments, [root])


class TestJudgement:
    SUITE = Suite("unit", "units", BUDGET_S, tests=Path("tests/unit"))

    def judge(self, ended: Ended, *, required: bool = False, narrowed: bool = False) -> Result:
        return judge(self.SUITE, ended, required=required, narrowed=narrowed)

    def test_passed(self) -> None:
        result = self.judge(Ended(0, 5.0, Counts(3, 0, 1)))
        assert (result.state, result.counts, result.notes) == (State.PASSED, Counts(3, 0, 1), ())

    def test_failed_tests(self) -> None:
        result = self.judge(Ended(1, 5.0, Counts(3, 2, 1)))
        assert (result.state, result.counts, result.notes) == (State.FAILED, Counts(3, 2, 1), ())

    @pytest.mark.parametrize(
        ("ended", "note"),
        [
            (Ended(5, 1.0, Counts()), "has no tests"),
            (Ended(0, 1.0, Counts()), "has no tests"),
            (Ended(4, 1.0, Counts()), "ended with exit code 4"),
            (Ended(1, 1.0, Counts(3)), "ended with exit code 1"),
            (Ended(-11, 1.0, None), "left no report; was killed by signal 11"),
            (Ended(3, 1.0, Counts(3)), "ended with exit code 3"),
            (
                Ended(0, 1.0, Counts(3), left_behind=("7 sleep",)),
                "left 1 processes behind, which were ended: 7 sleep",
            ),
            (
                Ended(2, 180.0, Counts(3), stopped_at_limit=True),
                "stopped after 3:00: its budget of 1:00 was used up",
            ),
            (
                Ended(2, 20.0, Counts(3), stopped_at_limit=True),
                "stopped after 0:20: the time of all suites together was used up",
            ),
        ],
    )
    def test_a_fault_of_the_whole_suite_is_one_failure(self, ended: Ended, note: str) -> None:
        result = self.judge(ended)
        assert (result.state, result.counts.failed, result.notes) == (State.FAILED, 1, (note,))

    def test_the_budget_binds_a_required_suite_only(self) -> None:
        ended = Ended(0, BUDGET_S + 1, Counts(3))
        note = ("took longer than its budget of 1:00",)
        free, bound = self.judge(ended), self.judge(ended, required=True)
        assert (free.state, free.counts.failed, free.notes) == (State.PASSED, 0, note)
        assert (bound.state, bound.counts.failed, bound.notes) == (State.FAILED, 1, note)

    def test_a_choice_of_tests_may_leave_a_suite_empty_unless_required(self) -> None:
        ended = Ended(5, 1.0, Counts())
        assert self.judge(ended, narrowed=True).state is State.NO_MATCH
        required = self.judge(ended, narrowed=True, required=True)
        assert (required.state, required.counts.failed) == (State.FAILED, 1)

    @pytest.mark.parametrize(
        ("results", "expected"),
        [
            ([(State.PASSED, True), (State.PASSED, False)], ExitCode.OK),
            ([(State.PASSED, False), (State.COULD_NOT, False)], ExitCode.OK),
            ([(State.PASSED, False), (State.NO_MATCH, False)], ExitCode.OK),
            ([(State.PASSED, False), (State.COULD_NOT, True)], ExitCode.COULD_NOT),
            ([(State.FAILED, False), (State.COULD_NOT, True)], ExitCode.FAILED),
            ([(State.COULD_NOT, False)], ExitCode.FAILED),
            ([(State.NO_MATCH, False), (State.NO_MATCH, False)], ExitCode.FAILED),
            ([(State.INTERRUPTED, False), (State.FAILED, False)], ExitCode.INTERRUPTED),
            ([], ExitCode.FAILED),
        ],
    )
    def test_exit_code(self, results: list[tuple[State, bool]], expected: ExitCode) -> None:
        assert exit_code([Result(self.SUITE, *result) for result in results]) is expected


class TestReport:
    def test_junit_counts_errors_as_failures(self, tmp_path: Path) -> None:
        file = tmp_path / "junit.xml"
        file.write_text(
            '<testsuites><testsuite tests="9" failures="1" errors="2" skipped="3"/>'
            '<testsuite tests="1"/></testsuites>'
        )
        assert read_junit(file) == Counts(passed=4, failed=3, skipped=3)

    @pytest.mark.parametrize("text", ["", "<testsuites><testsuite", '<testsuite tests="many"/>'])
    def test_half_a_junit_report_is_none(self, tmp_path: Path, text: str) -> None:
        file = tmp_path / "junit.xml"
        file.write_text(text)
        assert read_junit(file) is None
        assert read_junit(tmp_path / "missing.xml") is None

    @pytest.mark.parametrize(("seconds", "text"), [(0.4, "0:00"), (59.6, "1:00"), (754, "12:34")])
    def test_minutes(self, seconds: float, text: str) -> None:
        assert minutes(seconds) == text


def test_the_first_need_that_is_lacking_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NEEDS, "air", lambda: None)
    monkeypatch.setitem(NEEDS, "moon", lambda: "no moon")
    monkeypatch.setitem(NEEDS, "sun", lambda: "no sun")
    assert lacking(["air", "moon", "sun"]) == "no moon"
    assert lacking(["air"]) is None


def test_the_users_command_has_paths_of_its_own_checkout() -> None:
    command = ordinary.command(
        Path("/c"), ["-m", "pytest", "-x", "/c/tests/slurm/a.py::b", "/else"]
    )
    assert command == [
        *("/c/scripts/lib/ordinary.sh", ".venv/bin/python"),
        *("-m", "pytest", "-x", "tests/slurm/a.py::b", "/else"),
    ]


class TestInstalling:
    def fake(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Path:
        program, log = tmp_path / "apt-get", tmp_path / "log"
        program.write_text(f'#!/bin/sh\necho "$DEBIAN_FRONTEND $*" >>{log}\n{script}\n')
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        return log

    def test_nothing_but_the_packages(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        log = self.fake(tmp_path, monkeypatch, "")
        assert install.install(["munge", "slurmd"]) is None
        assert log.read_text().splitlines() == [
            "noninteractive update -q",
            "noninteractive install -q -y --no-install-recommends munge slurmd",
        ]

    def test_what_apt_says_is_passed_on(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.fake(tmp_path, monkeypatch, "echo no network >&2; exit 100")
        assert install.install(["munge"]) == "apt-get update -q failed: no network"
