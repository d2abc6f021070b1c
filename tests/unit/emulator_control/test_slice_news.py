# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
from pathways_emulator.slice_news import sentences
from pathways_slurm.runtime_files import Notice, Report, SliceReport

NOTICE = Notice("host 0 got SIGTERM", 1_800_000_000.0)
ALIVE = SliceReport(0, 1, True)
NOTICED = SliceReport(0, 1, True, notice=NOTICE)


def report(member: SliceReport) -> Report:
    return Report(settled=True, shutting_down=False, slices=(member, SliceReport(1, 1, True)))


def test_what_has_not_changed_is_no_news() -> None:
    for member in (ALIVE, NOTICED, SliceReport(0, 1, False, "gone")):
        assert sentences(report(member), report(member), "suspend") == []


def test_a_loss_has_its_reason() -> None:
    lost = SliceReport(0, 1, False, "host 1 ended: connection closed")
    news = ["slice 0 lost: host 1 ended: connection closed"]
    assert sentences(report(ALIVE), report(lost), "suspend") == news


def test_a_notice_says_what_follows() -> None:
    suspended = "slice 0 got notice (host 0 got SIGTERM): its data is being saved"
    assert sentences(report(ALIVE), report(NOTICED), "suspend") == [suspended]
    (forwarded,) = sentences(report(ALIVE), report(NOTICED), "forward")
    assert forwarded.endswith("it can be used until it goes, and nothing on it is saved")


def test_a_release_is_no_loss() -> None:
    released = SliceReport(0, 1, False, "its data is saved", NOTICE, released=True)
    expected = ["slice 0 ended: its data is saved"]
    assert sentences(report(NOTICED), report(released), "suspend") == expected


def test_an_end_after_a_notice_is_a_loss_where_data_was_to_be_saved() -> None:
    ended = SliceReport(0, 1, False, "host 0 left: too late", NOTICE)
    lost = ["slice 0 lost before its data was saved: host 0 left: too late"]
    assert sentences(report(NOTICED), report(ended), "suspend") == lost
    assert sentences(report(NOTICED), report(ended), "forward") == [
        "slice 0 ended: host 0 left: too late"
    ]


def test_notice_and_end_between_two_reports_are_both_told() -> None:
    released = SliceReport(0, 1, False, "its data is saved", NOTICE, released=True)
    assert sentences(report(ALIVE), report(released), "suspend") == [
        "slice 0 got notice (host 0 got SIGTERM): its data is being saved",
        "slice 0 ended: its data is saved",
    ]


def test_a_slice_that_is_back_is_told_and_its_next_notice_too() -> None:
    gone = SliceReport(0, 1, False, "its data is saved", NOTICE, released=True)
    coming = SliceReport(0, 2, False, "1 of 2 hosts of incarnation 2 registered")
    back, noticed = SliceReport(0, 2, True), SliceReport(0, 2, True, notice=NOTICE)
    assert sentences(report(gone), report(coming), "suspend") == []
    for before in (gone, coming):
        expected = ["slice 0 is back (incarnation 2)"]
        assert sentences(report(before), report(back), "suspend") == expected
    assert len(sentences(report(back), report(noticed), "suspend")) == 1
