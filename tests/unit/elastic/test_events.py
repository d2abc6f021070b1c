# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What a manager tells."""

import logging

import pytest

from pathways_elastic import events
from pathways_elastic.events import Event, EventKind

LOST = Event(EventKind.SLICES_LOST, "DATA_LOSS: slice 1", frozenset({0, 2}), frozenset({1}))


def test_an_event_is_logged_with_its_reason_and_given_to_the_callback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told: list[Event] = []
    events.tell(LOST, told.append)
    assert told == [LOST]
    assert caplog.record_tuples == [
        ("pathways_elastic", logging.WARNING, "SlicesLost: DATA_LOSS: slice 1")
    ]


def test_good_news_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    events.tell(Event(EventKind.RESHARDED_UP, "all are back", frozenset(), frozenset()), None)
    assert [record.levelno for record in caplog.records] == [logging.INFO]


def test_a_callback_that_fails_is_logged_and_stops_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(_: Event) -> None:
        raise RuntimeError("no disk left")

    events.tell(LOST, fail)
    assert "the callback for events failed at SlicesLost" in caplog.text
    assert "no disk left" in caplog.text


def test_of_an_error_the_first_line_is_told() -> None:
    assert events.first_line(RuntimeError("DATA_LOSS: slice 1\n*** Begin stack trace")) == (
        "DATA_LOSS: slice 1"
    )
    assert events.first_line(TimeoutError()) == "TimeoutError"
