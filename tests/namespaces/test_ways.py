# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Every way a slice goes, on a real Slurm: each is caused, and becomes what docs/slices.md says.

One service meets them all, several at a time, each on a slice of its own.
"""

import contextlib
import os
import pwd
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from slurm.devcluster.cluster import DevCluster
from slurm.devcluster.options import Options
from tests.e2e.service import wait_until
from tests.namespaces import happenings as h
from tests.namespaces.happenings import Happening
from tests.namespaces.service import UsersService
from tests.slurm.service.service import LIVE

from pathways_slurm.ways import WAYS

SLICES = 5
LEASE_S = 30
# For whatever comes of it, on a machine that does other things, too.
PATIENCE_S = 300.0

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def cluster() -> Iterator[DevCluster]:
    """Two slices more than the services have. Who is requeued waits, unless somebody lifts that."""
    with tempfile.TemporaryDirectory(prefix="devcluster-") as path:
        Path(path).chmod(0o711)
        options = Options(
            Path(path) / "c",
            slices=SLICES + 1 + 2,
            cpu_nodes=2,
            kill_wait_s=5,
            min_job_age_s=20,
            namespaces=True,
        )
        with DevCluster(options) as up:
            yield up


@contextlib.contextmanager
def _submitted(
    cluster: DevCluster, user: str, copy: Path, slices: int, **settings: str
) -> Iterator[UsersService]:
    with tempfile.TemporaryDirectory(prefix="service-") as path:
        account = pwd.getpwnam(user)
        shutil.chown(path, account.pw_uid, account.pw_gid)
        Path(path).chmod(0o755)
        made = UsersService(
            Path(path) / "home",
            cluster,
            user,
            copy,
            MAX_SLICES=str(slices),
            PATHWAYS_SLURM_PARTITION="tpu-low",
            PATHWAYS_HEARTBEAT_TIMEOUT_S="8",
            PATHWAYS_LEASE_S=str(LEASE_S),
            PATHWAYS_NOTICE_S="4",
            PATHWAYS_NODE_BUDGET="0",
            PATHWAYS_POWER_DOWN="never",
            **settings,
        )
        made.submit()
        yield made
        made.close()


@pytest.fixture(scope="module")
def unattended(cluster: DevCluster, user: str, copy: Path) -> Iterator[UsersService]:
    """Of one slice, which has ended while the supervisor is stopped: Slurm forgets its task."""
    ports = {"PATHWAYS_PROXY_PORT": "29010", "PATHWAYS_RM_PORT": "29011"}
    with _submitted(cluster, user, copy, 1, **ports) as made:
        wait_until(lambda: _ready(made) == {0}, PATIENCE_S, made.logs)
        os.kill(made.supervisor(), signal.SIGSTOP)
        os.kill(made.worker(0, 1), signal.SIGKILL)
        try:
            yield made
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(made.supervisor(), signal.SIGCONT)


@pytest.fixture(scope="module")
def service(
    cluster: DevCluster, user: str, copy: Path, unattended: UsersService
) -> Iterator[UsersService]:
    """Ready, with all its slices; another one is left to itself meanwhile."""
    with _submitted(cluster, user, copy, SLICES) as made:
        wait_until(lambda: _ready(made) == set(range(SLICES)), PATIENCE_S, made.logs)
        yield made
        # To close it is to wait until the user has no job left, also if a test has failed.
        cluster.run("scancel", *unattended.jobs, check=False)


def _ready(service: UsersService) -> set[int]:
    return {one["index"] for one in service.slices() if one["state"] == "READY"}


def _is_told(service: UsersService, one: Happening, since: float) -> bool:
    """The reason that the table has for it was given to people."""
    messages = service.told(one.index, since)
    return any(_says(message, way) for way in (one.way, one.or_way) if way for message in messages)


def _says(message: str, way: str) -> bool:
    pattern = re.escape(WAYS[way].reason).replace("…", ".*") + "$"
    return re.search(pattern, message) is not None


def _happen(service: UsersService, *all_: Happening) -> None:
    """Each is caused, told, and over: the slice is back as it should be, or stays away."""
    before = {one.index: service.slices()[one.index] for one in all_}
    spent = {one.index: service.spent(one.index) for one in all_}
    since = time.time()
    untold = [one for one in all_ if one.moves]
    away = list(all_)

    def look() -> bool:
        tasks = service.tasks_by_slice()
        assert all(count == 1 for count in tasks.values()), f"live tasks by slice: {tasks}"
        for one in [one for one in untold if _is_told(service, one, since)]:
            untold.remove(one)
            one.once_told()
        for one in [one for one in away if one not in untold]:
            if _is_as_it_should_be(service, one, before[one.index]["incarnation"]):
                away.remove(one)
                one.end()
        return not away

    with contextlib.ExitStack() as stack:
        for one in all_:
            stack.callback(one.end)
            one.cause()
        wait_until(look, PATIENCE_S, lambda: _story(service, untold, away, since), 0.2)
    for one in all_:
        counted = service.spent(one.index) - spent[one.index]
        free = not one.spends or (one.or_way and not counted)
        assert set(counted) == (set() if free else {one.spends}), (one.way, counted)


def _is_as_it_should_be(service: UsersService, one: Happening, incarnation: int) -> bool:
    now = service.slices()[one.index]
    if not one.returns:
        return bool(now["state"] == WAYS[one.way].state)
    least = incarnation + 1 if one.moves else incarnation
    return bool(now["state"] == "READY" and now["incarnation"] >= least)


def _story(
    service: UsersService, untold: list[Happening], away: list[Happening], since: float
) -> str:
    lines = [f"not told: {[(one.way, one.index) for one in untold]}"]
    lines += [f"not back: {[(one.way, one.index) for one in away]}"]
    for one in away:
        lines += [f"slice {one.index}: {message}" for message in service.told(one.index, since)]
    return "\n".join([*lines, f"nodes: {service.cluster.node_states()}", service.logs()])


def test_processes_that_end_and_orders_to_run_again(service: UsersService) -> None:
    _happen(
        service,
        h.Crash(service, 0),
        h.Exit(service, 1),
        h.Hang(service, 2),
        h.Requeue(service, 3),
        h.RequeueHold(service, 4),
    )


def test_a_worker_that_can_not_start(service: UsersService) -> None:
    _happen(service, h.Error(service, 0))


def test_launches_that_fail_limits_and_preemption(service: UsersService) -> None:
    _happen(
        service,
        h.LaunchFailure(service, 1),
        h.TimeLimit(service, 2),
        h.Preemption(service, 3),
        h.Drain(service, 4),
    )


def test_nodes_that_fail_and_what_was_left_on_them(service: UsersService) -> None:
    """What ran on a node that Slurm has given up ends, and takes no part until then."""
    before = {worker.process.key for worker in service.workers()}
    _happen(
        service,
        h.SlurmdKilled(service, 0),
        h.PowerCut(service, 1),
        h.Partition(service, 2),
        h.PreemptionWithGrace(service, 3),
        h.PowerDown(service, 4),
    )
    service.cluster.run("scontrol", "reconfigure")
    incarnations = {one["index"]: one["incarnation"] for one in service.slices()}

    def only_the_newest() -> bool:
        workers = service.workers()
        return before.isdisjoint(worker.process.key for worker in workers) and all(
            worker.incarnation == incarnations[worker.slice] for worker in workers
        )

    wait_until(only_the_newest, PATIENCE_S, lambda: f"left: {service.workers()}", 0.2)
    # Who was fenced has not taken the slice with it.
    assert _ready(service) == set(range(SLICES)), service.logs()
    assert {one["index"]: one["incarnation"] for one in service.slices()} == incarnations


def test_a_slice_that_is_cancelled_stays_so(service: UsersService) -> None:
    _happen(service, h.Cancel(service, 4))
    assert service.slices()[4]["reason"] == "cancelled by a user"
    assert service.tasks_by_slice() == dict.fromkeys(range(4), 1)


def test_a_slice_that_slurm_has_forgotten_is_submitted_again_and_runs_once(
    unattended: UsersService,
) -> None:
    since = time.time()
    before = unattended.slices()[0]
    wait_until(lambda: not unattended.tasks(live=False), PATIENCE_S, "its record is gone", 0.2)
    os.kill(unattended.supervisor(), signal.SIGCONT)

    def again() -> bool:
        assert unattended.tasks_by_slice()[0] <= 1
        now = unattended.slices()[0]
        return bool(now["state"] == "READY" and now["incarnation"] > before["incarnation"])

    wait_until(again, PATIENCE_S, unattended.logs, 0.2)
    messages = unattended.told(0, since)
    assert any(_says(message, "missing") for message in messages), messages
    assert unattended.spent(0) == {"missing": 1}
    (task,) = unattended.tasks(live=False)
    assert task["id"].partition("_")[0] not in before["task"]
    unattended.cluster.run("scancel", unattended.jobs[-1])
    unattended.expect_nothing_left(PATIENCE_S)


def test_the_service_comes_up_elsewhere_when_its_node_has_no_power(service: UsersService) -> None:
    """Slurm makes it wait for two minutes; until then the lease is all that ends the workers."""
    cluster, job = service.cluster, service.jobs[-1]
    (row,) = [row for row in service.queue() if row["job"] == job]
    run = service.status()["run_id"]
    address = cluster.node(row["nodes"]).address
    assert address in service.cluster_env.read_text()
    assert service.workers()
    cluster.power_off(row["nodes"])
    wait_until(
        lambda: not service.workers(), LEASE_S + PATIENCE_S, lambda: f"{service.workers()}", 0.2
    )
    wait_until(lambda: service.job_state(job) == "PENDING", PATIENCE_S, "Slurm requeues it", 0.2)
    cluster.run("scontrol", "update", f"jobid={job}", "StartTime=now")

    def again() -> bool:
        status = service.slices() and service.status()
        return bool(status and status["run_id"] != run and status["service"] == "READY")

    wait_until(again, PATIENCE_S, service.logs, 0.5)
    (row,) = [row for row in service.queue() if row["job"] == job]
    text = service.cluster_env.read_text()
    assert cluster.node(row["nodes"]).address in text
    assert address not in text
    wait_until(lambda: len(_ready(service)) == SLICES, PATIENCE_S, service.logs, 0.2)
    assert service.tasks_by_slice() == dict.fromkeys(range(SLICES), 1)
    cluster.run("scancel", job)
    service.expect_nothing_left(PATIENCE_S)
    wait_until(
        lambda: not [row for row in service.queue() if row["state"] in LIVE],
        PATIENCE_S,
        "no job is left",
        0.2,
    )
