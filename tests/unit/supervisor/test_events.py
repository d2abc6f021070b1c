# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""events.py: what is on disk, and what a reader makes of damage."""

import json
import os
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

from pathways_slurm.events import Event, EventLog, Reason, parse_event, read_events


@dataclass(frozen=True)
class Note:
    reason: Reason = Reason.SliceReady
    message: str = "slice 1 ready: every host answers"
    subject: str = "slice 1"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


@pytest.mark.parametrize("reason", Reason)
def test_each_reason_is_its_own_name_and_has_a_meaning(reason: Reason) -> None:
    assert reason.value == reason.name == str(reason)
    assert reason.meaning.endswith(".")
    assert Reason[reason.value] is reason


def test_a_line_on_disk(path: Path) -> None:
    EventLog(path, clock=lambda: 1_800_000_000.1234).append(Note(), incarnation=2)
    assert path.read_text() == (
        '{"time": 1800000000.123, "utc": "2027-01-15T08:00:00.123Z", "reason": "SliceReady", '
        '"subject": "slice 1", "message": "slice 1 ready: every host answers", "incarnation": 2}\n'
    )
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_events(path) == [
        Event(
            1_800_000_000.123,
            "SliceReady",
            "slice 1",
            "slice 1 ready: every host answers",
            {"incarnation": 2},
        )
    ]


def test_no_file_is_no_events(path: Path) -> None:
    assert read_events(path) == []


def test_a_message_stays_on_one_line_whatever_is_in_it(path: Path) -> None:
    message = "a\nb\r\x1b[31m \u2028 naïve " + os.fsdecode(b"\xff")
    EventLog(path).append(Note(message=message))
    assert len(path.read_bytes().splitlines()) == 1
    assert "naïve" in path.read_text()
    assert [event.message for event in read_events(path)] == [message]


def test_a_torn_line_costs_itself_only(path: Path) -> None:
    log = EventLog(path)
    log.append(Note(message="first"))
    log.append(Note(message="torn"))
    os.truncate(path, path.stat().st_size - 9)
    assert [event.message for event in read_events(path)] == ["first"]
    log.append(Note(message="third"))
    log.append(Note(message="fourth"))
    assert [event.message for event in read_events(path)] == ["first", "third", "fourth"]


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"null",
        b"[]",
        b"\xff\xfe",
        b'{"time": 1}',
        b'{"time": "1", "reason": "SliceReady", "subject": "s", "message": "m"}',
        b'{"time": 1, "reason": null, "subject": "s", "message": "m"}',
    ],
)
def test_what_is_no_event_is_left_out(line: bytes, path: Path) -> None:
    assert parse_event(line) is None
    path.write_bytes(line + b"\n")
    assert read_events(path) == []


def test_a_reason_of_a_newer_version_is_read(path: Path) -> None:
    path.write_text('{"time": 1, "reason": "SliceSwapped", "subject": "s", "message": "m"}\n')
    assert read_events(path) == [Event(1.0, "SliceSwapped", "s", "m")]


def test_writers_do_not_mix_their_lines(path: Path) -> None:
    def write(writer: int) -> None:
        for number in range(100):
            EventLog(path).append(Note(message="x" * 500), writer=writer, number=number)

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = path.read_text().splitlines()
    assert len(lines) == 400
    seen = {(json.loads(line)["writer"], json.loads(line)["number"]) for line in lines}
    assert len(seen) == 400


def test_a_line_that_can_not_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        EventLog(tmp_path / "missing" / "events.jsonl").append(Note())
