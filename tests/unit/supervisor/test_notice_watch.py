# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Notices as signals."""

import signal
from pathlib import Path

import pytest

from pathways_slurm import notices
from pathways_slurm.notice_watch import NoticeWatch
from pathways_slurm.notices import Going, Notices, Shutdown

ONE = Going(1, 4, 2000.0, "host 0 got SIGTERM")
OTHER = Going(0, 2, 2000.0, "host 0 got SIGTERM")
DUE = (signal.SIGUSR1,)


class Case:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.warnings: list[str] = []

    def watch(self) -> NoticeWatch:
        return NoticeWatch(self.path, signal.SIGUSR1, self.warnings.append)

    def write(self, *going: Going, shutdown: Shutdown | None = None, run: str = "run") -> None:
        notices.write(self.path, Notices(run, 1, going, shutdown=shutdown))


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path / "notices.json")


def test_each_slice_that_goes_is_one_signal(case: Case) -> None:
    watch = case.watch()
    assert watch.prompts() == ()
    case.write(ONE)
    assert watch.prompts() == DUE
    assert watch.prompts() == ()
    case.write(OTHER, ONE)
    assert watch.prompts() == DUE
    case.write(OTHER)
    assert watch.prompts() == ()


def test_several_at_once_are_one_signal(case: Case) -> None:
    watch = case.watch()
    case.write(OTHER, ONE)
    assert watch.prompts() == DUE
    assert watch.prompts() == ()


def test_a_later_run_of_a_slice_is_another_notice(case: Case) -> None:
    watch = case.watch()
    for incarnation in (4, 5):
        case.write(Going(1, incarnation, 2000.0, ""))
        assert watch.prompts() == DUE


def test_a_deadline_that_moves_is_no_news(case: Case) -> None:
    case.write(ONE)
    watch = case.watch()
    case.write(Going(1, 4, 1990.0, "host 1 got SIGTERM"))
    assert watch.prompts() == ()


def test_what_is_there_at_the_start_is_known(case: Case) -> None:
    case.write(ONE)
    watch = case.watch()
    assert watch.prompts() == ()
    case.write(ONE, OTHER)
    assert watch.prompts() == DUE


def test_the_end_of_the_service_is_a_signal_for_each_run_of_it(case: Case) -> None:
    watch = case.watch()
    for run in ("first", "second"):
        case.write(ONE, run=run)
        assert watch.prompts() == DUE
        case.write(ONE, shutdown=Shutdown("Ctrl-C", 1.0), run=run)
        assert watch.prompts() == DUE
        assert watch.prompts() == ()


def test_a_file_that_goes_and_comes_back_is_no_news(case: Case) -> None:
    watch = case.watch()
    case.write(ONE)
    assert watch.prompts() == DUE
    case.path.unlink()
    assert watch.prompts() == ()
    case.write(ONE)
    assert watch.prompts() == ()
    assert case.warnings == []


def test_a_file_that_is_none_is_told_once_and_ends_nothing(case: Case) -> None:
    watch = case.watch()
    case.path.write_text("{}")
    case.path.chmod(0o600)
    assert watch.prompts() == ()
    assert watch.prompts() == ()
    (warning,) = case.warnings
    assert str(case.path) in warning
    case.write(ONE)
    assert watch.prompts() == DUE
