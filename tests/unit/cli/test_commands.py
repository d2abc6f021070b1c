# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The commands that show what a service is and was."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pathways_slurm.cli.status_view import age
from pathways_slurm.events import EventLog, Reason
from pathways_slurm.plan import Note

COMMAND = str(Path(sys.executable).parent / "pathways-slurm")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Of a service that has ended, with events and logs."""
    log = EventLog(tmp_path / "events.jsonl", clock=iter([1000.0, 1001.5, 1002.0]).__next__)
    log.append(Note(Reason.ServiceStarting, "run 1 starts"))
    log.append(Note(Reason.SliceLost, "slice 1 lost: host 0 [bad] ended", "slice 1"))
    log.append(Note(Reason.ServiceStopped, "service ended"))
    for name, text in {
        "supervisor.log": "tick\n",
        "rm.log": "a\nb\nc\n",
        "slice-0/host-0.log": "zero\n",
        "slice-1/host-0.log": "one-zero\n",
        "slice-1/host-1.log": "one-one\n",
    }.items():
        path = tmp_path / "logs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def run(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [COMMAND, *arguments],
        env={**os.environ, "PATHWAYS_HOME": str(home), "TZ": "UTC"},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@contextmanager
def following(home: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [COMMAND, *arguments],
        env={**os.environ, "PATHWAYS_HOME": str(home), "TZ": "UTC"},
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


def test_events_are_shown_oldest_first_with_their_reasons(home: Path) -> None:
    done = run(home, "events")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "1970-01-01 00:16:40  ServiceStarting         run 1 starts",
        "1970-01-01 00:16:41  SliceLost               slice 1 lost: host 0 [bad] ended",
        "1970-01-01 00:16:42  ServiceStopped          service ended",
    ]


def test_events_in_json_are_the_lines_of_the_file(home: Path) -> None:
    done = run(home, "events", "--json", "-n", "1")
    assert [json.loads(line)["reason"] for line in done.stdout.splitlines()] == ["ServiceStopped"]


def test_events_are_followed_and_an_interrupt_ends_that(home: Path) -> None:
    with following(home, "events", "--follow", "-n", "1") as process:
        assert line_of(process).endswith("service ended")
        EventLog(home / "events.jsonl").append(Note(Reason.ServiceStarting, "run 2 starts"))
        assert line_of(process).endswith("run 2 starts")
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == -signal.SIGINT


def test_logs_of_one_slice(home: Path) -> None:
    done = run(home, "logs", "1")
    assert done.stdout.splitlines() == ["slice-1/host-0  one-zero", "slice-1/host-1  one-one"]


def test_logs_of_one_file_are_not_prefixed_and_begin_with_the_last_lines(home: Path) -> None:
    assert run(home, "logs", "rm", "-n", "2").stdout.splitlines() == ["b", "c"]


def test_logs_of_everything(home: Path) -> None:
    names = [line.split()[0] for line in run(home, "logs", "-n", "1").stdout.splitlines()]
    assert names == ["supervisor", "rm", "slice-0/host-0", "slice-1/host-0", "slice-1/host-1"]


def test_logs_are_followed_into_files_that_come_later(home: Path) -> None:
    with following(home, "logs", "--follow", "proxy", "2") as process:
        path = home / "logs" / "slice-2"
        path.mkdir()
        (path / "host-0.log").write_text("new\n")
        assert line_of(process).endswith("new")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("logs", "worker"), 2, "'worker' is no part of a service; valid: a slice index, superv"),
        (("logs", "7"), 1, "has no log of 7 yet"),
        (("status", "--json", "--watch"), 2, "--json and --watch exclude each other"),
        (("events", "-n", "-1"), 2, "-1 is not in the range"),
    ],
)
def test_what_can_not_be_shown_is_said(
    home: Path, arguments: tuple[str, ...], code: int, words: str
) -> None:
    done = run(home, *arguments)
    assert done.returncode == code
    assert words in done.stderr


@pytest.mark.parametrize("command", ["events", "logs"])
def test_where_no_service_was_ever_started(tmp_path: Path, command: str) -> None:
    done = run(tmp_path / "none", command)
    assert done.returncode == 1
    assert "no service was ever started in" in done.stderr


def test_status_shows_the_last_events_as_they_are_written(home: Path) -> None:
    done = run(home, "status")
    assert done.returncode == 4
    assert "slice 1 lost: host 0 [bad] ended" in done.stdout


def test_status_is_watched_without_a_terminal_too(home: Path) -> None:
    (home / "state").mkdir()
    status = {"service": "STOPPED", "reason": "one", "slices": [], "supervisor_pid": 1}
    (home / "state" / "status.json").write_text(json.dumps(status))
    with following(home, "status", "--watch") as process:
        assert line_of(process) == "service  STOPPED  one"
        (home / "state" / "new.json").write_text(json.dumps({**status, "reason": "two"}))
        (home / "state" / "new.json").replace(home / "state" / "status.json")
        assert line_of(process) == "service  STOPPED  two"
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == -signal.SIGINT


@pytest.mark.parametrize(
    ("since", "text"), [(0.0, "-"), (9_999.0, "0m01s"), (9_800.0, "3m20s"), (2_000.0, "2h13m")]
)
def test_an_age(since: float, text: str) -> None:
    assert age(since, 10_000.0) == text
