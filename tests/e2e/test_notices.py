# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Slices that go after notice, as programs beside the service see it."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.service import ServiceUnderTest, output_of, wait_until

from pathways_slurm import notices
from pathways_slurm.notices import Back, Going, Notices


@pytest.fixture
def two_hosts(tmp_path: Path) -> Iterator[ServiceUnderTest]:
    """Two slices of two hosts; a failure would not be forgiven."""
    under_test = ServiceUnderTest(
        tmp_path / "home",
        SLICE_SHAPE="2x4",
        MIN_SLICES="1",
        MAX_SLICES="2",
        PATHWAYS_SLICE_RESTART_BUDGET="0",
    )
    yield under_test
    under_test.close()


def _read(service: ServiceUnderTest) -> Notices:
    return notices.read(service.home / notices.FILE)


def _reasons(service: ServiceUnderTest, subject: str) -> list[str]:
    return [e["reason"] for e in service.events() if e["subject"] == subject]


def test_a_slice_goes_after_notice_and_comes_back_free_of_budget(
    two_hosts: ServiceUnderTest,
) -> None:
    two_hosts.up()
    two_hosts.wait_for_slice(0, "READY")
    before = two_hosts.wait_for_slice(1, "READY")
    assert (_read(two_hosts).going, _read(two_hosts).back) == ((), ())
    os.kill(before["hosts"][1]["pid"], signal.SIGTERM)
    after = two_hosts.wait_for_slice(1, "READY", above=1)
    pids = {host["pid"] for host in before["hosts"]} & {host["pid"] for host in after["hosts"]}
    assert not pids, "both hosts were started again"
    reasons = _reasons(two_hosts, "slice 1")
    # With nothing to save it may have gone before the supervisor looks.
    assert reasons.count("SliceGone") == 1
    assert "SliceLost" not in reasons
    found = _read(two_hosts)
    assert found.back == (Back(1, 2, found.back[0].since),)
    assert found.going == ()
    assert (two_hosts.home / notices.FILE).stat().st_mode & 0o777 == 0o600
    assert two_hosts.status()["slices"][0]["incarnation"] == 1


def test_a_program_that_looks_after_its_data_lets_a_slice_go_when_it_has_left_it(
    two_hosts: ServiceUnderTest,
) -> None:
    two_hosts.settings |= {"PATHWAYS_ON_NOTICE": "forward", "PATHWAYS_NOTICE_S": "60"}
    root = two_hosts.up()
    before = two_hosts.wait_for_slice(1, "READY")
    given_at = time.time()
    os.kill(before["hosts"][0]["pid"], signal.SIGTERM)
    (going,) = wait_until(lambda: _read(two_hosts).going, 20.0, f"announced: {two_hosts.logs()}")
    assert going == Going(1, 1, going.deadline, "host 0 got SIGTERM")
    (notice,) = (e for e in two_hosts.events() if e["reason"] == "SliceNotice")
    assert notice["message"].startswith("slice 1 goes within ")
    assert notice["message"].endswith(" s: host 0 got SIGTERM")
    assert given_at + 58 < going.deadline < time.time() + 60
    item = two_hosts.wait_for_slice(1, "ENDING")
    assert item["hosts"] == before["hosts"], "it still runs"
    assert item["reason"].startswith("goes within ")
    answered_at = time.time()
    notices.acknowledge(two_hosts.home / notices.DIRECTORY, 1, 1)
    after = two_hosts.wait_for_slice(1, "READY", above=1)
    assert after["incarnation"] == 2
    gone = next(e for e in two_hosts.events() if e["reason"] == "SliceGone")
    assert gone["time"] - answered_at < 15.0, "far below the notice's 60 s"
    assert "its programs have left it" in gone["message"]
    wait_until(
        lambda: not notices.acknowledged(two_hosts.home / notices.DIRECTORY), 10.0, "settled"
    )
    (back,) = _read(two_hosts).back
    assert (back.slice, back.incarnation) == (1, 2)
    _end_without_saving(two_hosts)
    assert root.wait(10) == 0, output_of(root)


def _end_without_saving(service: ServiceUnderTest) -> None:
    """The end of the service is no notice: it is announced, and workers end at once."""
    down = service.run("down")
    assert down.returncode == 0, down.stderr
    said = _read(service)
    assert said.shutdown is not None
    assert said.shutdown.reason == "asked to by SIGTERM"
    assert said.going == ()
    assert _reasons(service, "slice 1").count("SliceNotice") == 1
    for log in sorted((service.home / "logs").glob("slice-*/host-*.log")):
        last = log.read_text().splitlines()[-1]
        assert "ends with exit code 0: shutdown: asked to by SIGTERM" in last, log
    service.expect_nothing_left(within_s=5.0)
