# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Submissions: one array per tag, whatever sbatch answers and whoever is killed when."""

import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.slurm.support import FakeSlurm, programs, row

from pathways_slurm.locks import try_lock
from pathways_slurm.scheduler.base import ArraySpec, SchedulerError, SchedulerUnavailable
from pathways_slurm.scheduler.slurm import SlurmScheduler
from pathways_slurm.scheduler.slurm_intents import Intent, array_id_in, settled
from pathways_slurm.scheduler.slurm_options import SlurmOptions

TIMED_OUT = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n"
SETTLE_S = 20.0


class Case:
    """A scheduler on a Slurm that a test plays."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.notes = directory / "notes"
        self.slurm = FakeSlurm()
        self.path = programs(directory / "bin")
        self.spec = ArraySpec(
            tag="run-0",
            indices=(0, 1),
            hosts_per_task=1,
            argv=("/bin/true",),
            env={"X": "y"},
            first_incarnation=3,
            log_dir=directory / "logs",
        )

    def scheduler(self, settle_s: float = SETTLE_S) -> SlurmScheduler:
        return SlurmScheduler(
            self.notes,
            SlurmOptions(),
            timeout_s=2.0,
            settle_s=settle_s,
            environment={
                "PATH": self.path,
                "HOME": "/home/ann",
                "SLURM_CONF": "/x.conf",
                "SLURM_NTASKS": "3",
                "SECRET": "s",
            },
            runner=self.slurm,
        )

    def age(self, seconds: float) -> None:
        """As if the notes were written that long ago."""
        (path,) = self.notes.glob("*.json")
        fields = json.loads(path.read_text())
        for name in ("written", "answering_since"):
            fields[name] = max(0.0, fields[name] - seconds) if fields[name] else 0.0
        path.write_text(json.dumps(fields))


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


def test_the_answer_is_kept(case: Case) -> None:
    scheduler = case.scheduler()
    assert scheduler.find("run-0") is None
    assert scheduler.submit(case.spec) == "44"
    assert case.scheduler().submit(replace(case.spec, indices=(7,))) == "44"
    # Long after Slurm has forgotten it, and while Slurm is away.
    case.slurm.rows = None
    assert case.scheduler().find("run-0") == "44"
    assert case.slurm.count("sbatch") == 1
    assert (case.directory / "logs" / "slice-1").is_dir()


def test_the_jobs_environment_is_the_allowed_part_and_the_specs(case: Case) -> None:
    case.scheduler().submit(case.spec)
    assert case.slurm.environments == [
        {"HOME": "/home/ann", "PATH": case.path, "SLURM_CONF": "/x.conf", "X": "y"}
    ]


def test_warnings_around_the_answer(case: Case) -> None:
    case.slurm.sbatch = lambda: (0, "sbatch: warning: 7 things\n45;cluster\nsbatch: note\n")
    assert case.scheduler().submit(case.spec) == "45"


def test_an_array_of_an_earlier_supervisor_without_notes_is_adopted(case: Case) -> None:
    case.slurm.rows = [row(0, array=51), row(0, array=50), row(0, array=9, name="pathways-run-1")]
    assert case.scheduler().find("run-0") == "50"
    assert case.scheduler().submit(case.spec) == "50"
    assert case.slurm.count("sbatch") == 0


def test_nothing_is_submitted_while_slurm_does_not_show_its_jobs(case: Case) -> None:
    case.slurm.rows = None
    with pytest.raises(SchedulerUnavailable):
        case.scheduler().submit(case.spec)
    assert case.slurm.count("sbatch") == 0


@pytest.mark.parametrize("answer", [(None, ""), (1, TIMED_OUT)])
class TestAnSbatchThatTimedOut:
    def fail(self, case: Case, answer: tuple[int | None, str]) -> None:
        case.slurm.sbatch = lambda: answer
        with pytest.raises(SchedulerUnavailable):
            case.scheduler().submit(case.spec)
        case.slurm.sbatch = lambda: (0, "46\n")

    def test_is_not_repeated_while_slurm_may_take_it(
        self, case: Case, answer: tuple[int | None, str]
    ) -> None:
        self.fail(case, answer)
        for _ in range(3):
            with pytest.raises(SchedulerUnavailable, match="may yet take the array"):
                case.scheduler().submit(case.spec)
            with pytest.raises(SchedulerUnavailable, match="may yet take the array"):
                case.scheduler().find("run-0")
        assert case.slurm.count("sbatch") == 1

    def test_is_adopted_when_slurm_has_taken_it(
        self, case: Case, answer: tuple[int | None, str]
    ) -> None:
        self.fail(case, answer)
        case.slurm.rows = [row(0, "PENDING", array=45, nodes="")]
        assert case.scheduler().find("run-0") == "45"
        assert case.scheduler().submit(case.spec) == "45"
        assert case.slurm.count("sbatch") == 1

    def test_is_repeated_once_slurm_has_shown_none_for_a_while(
        self, case: Case, answer: tuple[int | None, str]
    ) -> None:
        self.fail(case, answer)
        with pytest.raises(SchedulerUnavailable):
            case.scheduler().find("run-0")
        case.age(SETTLE_S + 1)
        assert case.scheduler().find("run-0") is None
        assert case.scheduler().submit(case.spec) == "46"
        assert case.slurm.count("sbatch") == 2

    def test_time_in_which_slurm_is_silent_does_not_count(
        self, case: Case, answer: tuple[int | None, str]
    ) -> None:
        self.fail(case, answer)
        # Nobody looked in all that time.
        case.age(10 * SETTLE_S)
        with pytest.raises(SchedulerUnavailable, match="may yet"):
            case.scheduler().submit(case.spec)
        case.age(SETTLE_S + 1)
        # It was silent again, just before it would have counted.
        case.slurm.rows = None
        with pytest.raises(SchedulerUnavailable, match="Unable to contact"):
            case.scheduler().submit(case.spec)
        case.slurm.rows = []
        with pytest.raises(SchedulerUnavailable, match="may yet"):
            case.scheduler().submit(case.spec)
        assert case.slurm.count("sbatch") == 1


@pytest.mark.parametrize(
    "words",
    [
        "sbatch: error: Batch job submission failed: Unable to contact slurm controller "
        "(connect failure)",
        "sbatch: error: Munge encode failed: Failed to access socket",
    ],
)
def test_a_request_that_reached_nobody_is_repeated_at_once(case: Case, words: str) -> None:
    case.slurm.sbatch = lambda: (1, words)
    with pytest.raises(SchedulerUnavailable):
        case.scheduler().submit(case.spec)
    case.slurm.sbatch = lambda: (0, "46\n")
    assert case.scheduler().submit(case.spec) == "46"


def test_a_refusal_has_slurms_words_and_leaves_no_doubt(case: Case) -> None:
    case.slurm.sbatch = lambda: (1, "sbatch: error: invalid account or partition\n")
    with pytest.raises(SchedulerError, match="invalid account or partition"):
        case.scheduler().submit(case.spec)
    assert case.scheduler().find("run-0") is None
    case.slurm.sbatch = lambda: (0, "46\n")
    assert case.scheduler().submit(case.spec) == "46"


class _Killed(BaseException):
    pass


class TestAKilledSubmitter:
    def kill(self, case: Case, answer: str) -> None:
        """The submitter dies within sbatch, which has written ``answer`` by its end."""

        def die() -> tuple[int | None, str]:
            (file,) = case.notes.glob("*.sbatch")
            file.write_text(answer)
            raise _Killed

        case.slurm.sbatch = die
        with pytest.raises(_Killed):
            case.scheduler().submit(case.spec)
        case.slurm.sbatch = lambda: (0, "46\n")

    def test_whose_sbatch_was_answered(self, case: Case) -> None:
        self.kill(case, "45\n")
        # Even if Slurm does not list it yet.
        assert case.scheduler().submit(case.spec) == "45"
        assert case.slurm.count("sbatch") == 1

    def test_whose_sbatch_said_nothing(self, case: Case) -> None:
        self.kill(case, "")
        started = time.monotonic()
        assert case.scheduler().submit(case.spec) == "46"
        assert time.monotonic() - started >= 1.0

    def test_whose_sbatch_still_runs(self, case: Case) -> None:
        self.kill(case, "")
        # sbatch has inherited the lock.
        lock = try_lock(case.notes / "lock")
        assert lock is not None
        try:
            for verb in (lambda: case.scheduler().submit(case.spec), self._find(case)):
                with pytest.raises(SchedulerUnavailable, match="is under way"):
                    verb()
        finally:
            os.close(lock)
        assert case.slurm.count("sbatch") == 1

    @staticmethod
    def _find(case: Case) -> Callable[[], str | None]:
        return lambda: case.scheduler().find("run-0")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"indices": ()}, "indices"),
        ({"hosts_per_task": 0}, "hosts_per_task 0"),
        ({"argv": ("sleep",)}, "not an absolute path"),
        ({"tag": ""}, "tag is empty"),
        ({"tag": "a/b"}, "'a/b' must be 1 to 128 letters"),
        ({"env": {"SLURM_NTASKS": "3"}}, "SLURM_NTASKS is read by Slurm itself"),
    ],
)
def test_requests_that_can_not_be_met(case: Case, change: dict[str, Any], words: str) -> None:
    with pytest.raises(SchedulerError, match=words):
        case.scheduler().submit(replace(case.spec, **change))
    assert case.slurm.calls == []


def test_notes_that_can_not_be_read_are_no_proof_of_anything(case: Case) -> None:
    case.scheduler().submit(case.spec)
    (path,) = case.notes.glob("*.json")
    for text in ("", "{}", '{"tag": 1}', "[]"):
        path.write_text(text)
        with pytest.raises(SchedulerUnavailable, match="notes of submissions"):
            case.scheduler().find("run-0")
        with pytest.raises(SchedulerUnavailable, match="notes of submissions"):
            case.scheduler().submit(case.spec)
    assert case.slurm.count("sbatch") == 1


def test_notes_are_private(case: Case) -> None:
    case.scheduler().submit(case.spec)
    assert case.notes.stat().st_mode & 0o777 == 0o700
    for path in case.notes.iterdir():
        assert path.stat().st_mode & 0o777 == 0o600


def test_intents_are_read_as_they_were_written() -> None:
    intent = Intent("t", 3, (0, 1, 2), "/logs", 5.0, "44", 0.0).with_withdrawn([2, 1], 9.0)
    assert intent.withdrawn == ((1, 9.0), (2, 9.0))
    assert Intent.parse(intent.format()) == intent
    assert intent.with_withdrawn([1], 10.0) == intent


@pytest.mark.parametrize(
    ("answer", "expected"),
    [("44\n", "44"), ("44;c\n", "44"), ("", None), ("error 44\n", None), ("0\n", None)],
)
def test_array_ids(answer: str, expected: str | None) -> None:
    assert array_id_in(answer) == expected


def test_settled() -> None:
    intent = Intent("t", 1, (0,), "/logs", 0.0)
    assert not settled(intent, 1e9, 10.0)
    assert not settled(replace(intent, answering_since=100.0), 109.0, 10.0)
    assert settled(replace(intent, answering_since=100.0), 110.0, 10.0)
