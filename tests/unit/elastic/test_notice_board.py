# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What the board shows of a service's notices.json, and how it answers."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pathways_elastic.notice_board import NoticeBoard, Source
from pathways_slurm import cluster_env, notices
from pathways_slurm.cluster_env import ClusterEnv
from pathways_slurm.notices import Back, Going, Notices, Shutdown
from pathways_slurm.paths import DEFAULT_NAME, ServicePaths

GOING = Going(1, 4, 1000.0, "host 0 got SIGTERM")
BACK = Back(2, 5, 900.0)
SAID = Notices("run-1", 3, (GOING,), (BACK,), None)
SERVICE = ClusterEnv(
    run_id="run-1",
    name=DEFAULT_NAME,
    home=None,
    proxy_address="127.113.255.1:9",
    rm_address="127.113.255.1:10",
    tpu_type="v6e",
    slice_shape="2x2",
    min_slices=1,
    max_slices=3,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / notices.FILE


@pytest.fixture
def follow(path: Path) -> Iterator[Callable[..., NoticeBoard]]:
    boards: list[NoticeBoard] = []

    def make(run_id: str | None = "run-1", forwards: bool = True) -> NoticeBoard:
        boards.append(NoticeBoard(Source(path, run_id, forwards)))
        return boards[-1]

    yield make
    for board in boards:
        board.close()


def wait_until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def test_the_file_is_beside_cluster_env_or_in_the_services_home() -> None:
    assert Source.of({}) == Source(None, None, False)
    home = {"PATHWAYS_HOME": "/home/ann/pathways", "PATHWAYS_RUN_ID": "r"}
    assert Source.of(home) == Source(Path("/home/ann/pathways/notices.json"), "r", False)
    seen = {**home, "PATHWAYS_CLUSTER_ENV": "/mnt/x/cluster.env", "PATHWAYS_ON_NOTICE": "forward"}
    assert Source.of(seen) == Source(Path("/mnt/x/notices.json"), "r", True)


@pytest.mark.parametrize("name", [DEFAULT_NAME, "two"])
def test_a_cluster_env_that_was_sourced_leads_to_its_own_services_notices(
    name: str, tmp_path: Path
) -> None:
    paths = ServicePaths.of(tmp_path / "home", name)
    published = replace(SERVICE, name=name, home=str(tmp_path / "home"), on_notice="forward")
    paths.directory.mkdir(parents=True)
    cluster_env.write(paths.cluster_env, published)
    sourced = subprocess.run(
        ["bash", "-c", f". {paths.cluster_env}; env -0"],
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    environment = dict(pair.split("=", 1) for pair in sourced.stdout.split("\0") if pair)
    assert Source.of(environment) == Source(paths.notices, "run-1", True)


def test_variables_that_name_no_service_are_an_error() -> None:
    with pytest.raises(ValueError, match="PATHWAYS_NAME is 'A B'"):
        Source.of({"PATHWAYS_HOME": "/home/ann/pathways", "PATHWAYS_NAME": "A B"})


def test_without_a_service_nothing_is_announced() -> None:
    board = NoticeBoard(Source(None, None, True))
    assert (dict(board.going), board.back, board.ends) == ({}, {}, None)
    assert board.acknowledge({1}) == []
    board.close()


def test_what_is_there_is_known_at_once_and_what_comes_soon(
    path: Path, follow: Callable[..., NoticeBoard]
) -> None:
    notices.write(path, SAID)
    board = follow()
    assert (board.going, board.back, board.ends) == ({1: GOING}, {2: BACK}, None)
    notices.write(path, SAID.changed_to((), (), Shutdown("asked to", 950.0)))
    wait_until(lambda: board.ends == "asked to", "the change is seen")
    assert (board.going, board.back) == ({}, {})
    path.unlink()
    wait_until(lambda: board.ends is None, "the file's end is seen")


def test_what_another_run_has_said_is_of_no_interest(
    path: Path, follow: Callable[..., NoticeBoard]
) -> None:
    notices.write(path, SAID)
    board = follow(run_id="run-2")
    assert (board.going, board.back) == ({}, {})


def test_slices_are_not_to_be_left_if_the_service_looks_after_their_data(
    path: Path, follow: Callable[..., NoticeBoard]
) -> None:
    notices.write(path, SAID)
    board = follow(forwards=False)
    assert (board.going, board.back) == ({}, {2: BACK})
    assert board.acknowledge({1}) == []


def test_a_file_that_can_not_be_read_changes_nothing_and_is_told_of_once(
    path: Path, follow: Callable[..., NoticeBoard], caplog: pytest.LogCaptureFixture
) -> None:
    notices.write(path, SAID)
    board = follow()
    path.write_text("{")
    wait_until(lambda: caplog.records, "it is told")
    assert board.going == {1: GOING}
    notices.write(path, SAID.changed_to((), SAID.back, None))
    wait_until(lambda: not board.going, "it is read again")
    assert len(caplog.records) == 1


def test_each_run_of_a_slice_is_acknowledged_once_when_it_is_not_used(
    path: Path, follow: Callable[..., NoticeBoard]
) -> None:
    notices.write(path, SAID)
    board = follow()
    assert board.acknowledge({0, 2}) == []
    assert board.acknowledge({0, 1}) == [GOING]
    assert board.acknowledge({0, 1}) == []
    assert notices.acknowledged(path.with_name(notices.DIRECTORY)) == {(1, 4)}


def test_an_answer_that_can_not_be_written_is_tried_again(
    path: Path, follow: Callable[..., NoticeBoard], caplog: pytest.LogCaptureFixture
) -> None:
    notices.write(path, SAID)
    board = follow()
    path.with_name(notices.DIRECTORY).write_text("in the way")
    assert board.acknowledge({1}) == []
    assert "slice 1 could not be let go early" in caplog.text
    path.with_name(notices.DIRECTORY).unlink()
    assert board.acknowledge({1}) == [GOING]
