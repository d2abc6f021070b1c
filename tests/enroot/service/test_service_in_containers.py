# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Services whose components are in containers: they do what they do without, and leave nothing.

Slurm and the local scheduler, the emulator's image, and whatever enroot the suite is run with.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from slurm.devcluster.cluster import DevCluster
from slurm.devcluster.options import Options
from tests.e2e.service import ServiceUnderTest, output_of, wait_until
from tests.slurm.service import golden
from tests.slurm.service.preemption import Preemption
from tests.slurm.service.service import SlurmService

# Computes with one array on each slice, before and after it is told to go on.
CLIENT = """
import pathlib, sys, time
import jax, pathwaysutils
pathwaysutils.initialize()
last = {device.slice_index: device for device in jax.devices()}
arrays = [jax.device_put(jax.numpy.arange(8.0) + index, last[index]) for index in sorted(last)]
square = jax.jit(lambda x: (x * x).sum())
def compute():
    print(len(jax.devices()), [float(square(array)) for array in arrays], flush=True)
compute()
while len(sys.argv) > 1 and not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.05)
compute()
"""
# Of 16 devices on two slices: the sums of the squares of 0..7 and of 1..8.
COMPUTED = "16 [140.0, 204.0]\n"

# For whatever takes a few seconds on a machine that is quiet.
PATIENCE_S = 120.0

# What a container has of its own beside the variables that a component is given.
CONTAINERS_OWN = {"HOME", "LOGNAME", "OLDPWD", "PATH", "PWD", "SHELL", "SHLVL", "TERM", "USER", "_"}
LOCALE = ("LANG", "LC_", "TZ")
OURS = ("TPU_", "MEGASCALE_", "PATHWAYS_", "CHIPS_", "HOST_BOUNDS", "ENABLE_", "IFRT_")


@pytest.fixture
def service(tmp_path: Path, in_containers: dict[str, str]) -> Iterator[SlurmService]:
    """Two slices of two hosts, both of which must be there; and one failure of each at most."""
    # pytest's directories have names too long for the daemons' sockets.
    with tempfile.TemporaryDirectory(prefix="devcluster-") as path:
        options = Options(
            Path(path) / "c", slices=2, cred_expire_s=5, grace_time_s=10, kill_wait_s=30
        )
        with DevCluster(options) as cluster:
            made = SlurmService(
                tmp_path / "home",
                cluster,
                MIN_SLICES="2",
                PATHWAYS_LEASE_S="20",
                PATHWAYS_SLICE_RESTART_BUDGET="1",
                PATHWAYS_SLURM_PARTITION="tpu-low",
                **in_containers,
            )
            try:
                yield made
            finally:
                made.close()


def _is_in_container(pid: int) -> bool:
    return Path(f"/proc/{pid}/ns/mnt").readlink() != Path("/proc/self/ns/mnt").readlink()


def _has_ended(pid: int) -> bool:
    """Also if its new parent, the machine's first process, has not taken note of that yet."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    return True


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _client(service: ServiceUnderTest, *arguments: str) -> subprocess.Popen[str]:
    return service.start("run", "--", sys.executable, "-c", CLIENT, *arguments)


def _expect_output(client: subprocess.Popen[str], expected: str) -> None:
    """All that is left to be read of it; and that it succeeds."""
    said, _ = client.communicate(timeout=PATIENCE_S)
    assert (said, client.returncode) == (expected, 0)


def _expect_no_trace(service: ServiceUnderTest, containers: Path) -> None:
    """No process, no attempt, and no mount of either."""
    service.expect_nothing_left(PATIENCE_S)

    def clean() -> bool:
        return not any((containers / "attempts").iterdir())

    wait_until(clean, PATIENCE_S, lambda: f"attempts: {list((containers / 'attempts').iterdir())}")
    for mounts in Path("/proc").glob("[0-9]*/mountinfo"):
        # Another's process, or one that has ended.
        with contextlib.suppress(OSError):
            assert str(containers) not in mounts.read_text()


def _goes_and_comes_back(service: SlurmService, end: Callable[[str], None]) -> None:
    """Has slice 1 end, told the address of its second host; waits for the next run of it."""
    before = service.wait_for_slice(1, "READY")
    end(before["hosts"][1]["address"])
    service.wait_for_slice(1, "READY", above=before["incarnation"])
    service.wait_for("READY")


def _preempt(service: SlurmService, nodes: list[str]) -> None:
    preemption = Preemption(service, nodes)
    preemption.wait_until_it_runs()
    preemption.end()


@pytest.mark.timeout(600)
def test_everything_works_in_containers_as_it_does_without(
    service: SlurmService, containers: Path, tmp_path: Path
) -> None:
    job = service.sbatch()
    status = service.wait_for("READY", timeout_s=PATIENCE_S)

    # Command lines and environments are the same.
    pids = golden.check(
        service,
        status,
        golden.oracle_of("v6e", "2x4", 2),
        "tpuv6e:2x4",
        f"{service.settings['GCS_BUCKET']}/pathways-scratch/shared",
        (
            ["-I", "-m", "pathways_emulator.server"],
            ["-I", "-m", "pathways_emulator.proxy_server"],
        ),
    )
    for pid in pids:
        assert _is_in_container(pid)
        others = {name for name in golden.environment(pid) if not name.startswith((*OURS, *LOCALE))}
        assert others <= CONTAINERS_OWN
    attempts = sorted(path.name.split(".")[0] for path in (containers / "attempts").iterdir())
    assert attempts == ["proxy", "rm", *(f"worker-{i}-{j}" for i in (0, 1) for j in (0, 1))]

    # A slice that Slurm preempts takes its data along, to where the proxy finds it again.
    go_on = tmp_path / "go-on"
    client = _client(service, str(go_on))
    assert client.stdout is not None
    assert client.stdout.readline() == COMPUTED
    _goes_and_comes_back(service, lambda _: _preempt(service, status["slices"][1]["nodes"]))
    go_on.touch()
    _expect_output(client, COMPUTED)

    # A host that is killed is its slice's end, and its slice's only.
    _goes_and_comes_back(service, lambda at: os.kill(service.worker_on(at), signal.SIGKILL))
    task = next(row for row in service.tasks() if row["id"].endswith("_1"))
    assert (task["state"], task["restarts"]) == ("RUNNING", "2")

    # A new supervisor recognises what an earlier one has started.
    before = service.status()
    os.kill(service.pid_of("supervise"), signal.SIGKILL)
    wait_until(
        lambda: any(e["reason"] == "SupervisorAdopted" for e in service.events()),
        PATIENCE_S,
        "adopted",
    )
    after = service.wait_for("READY")
    assert (after["rm"]["pid"], after["proxy"]["pid"]) == (
        before["rm"]["pid"],
        before["proxy"]["pid"],
    )

    # What a killed guard has started ends with it, in a container too.
    keeper = _parent(before["proxy"]["pid"])
    os.kill(_parent(keeper), signal.SIGKILL)
    wait_until(
        lambda: service.status()["proxy"]["pid"] not in (None, before["proxy"]["pid"]),
        PATIENCE_S,
        lambda: f"another proxy: {service.logs()}",
    )
    assert _has_ended(before["proxy"]["pid"])
    service.wait_for("READY")
    _expect_output(_client(service), 2 * COMPUTED)

    service.cluster.run("scancel", job)
    wait_until(lambda: service.job_state(job) == "CANCELLED", PATIENCE_S, "the job ends", 0.2)
    _expect_no_trace(service, containers)
    assert service.status()["service"] == "STOPPED"


@pytest.mark.timeout(400)
def test_the_local_scheduler_runs_containers_too(
    in_containers: dict[str, str], containers: Path, tmp_path: Path
) -> None:
    service = ServiceUnderTest(
        tmp_path / "home", SLICE_SHAPE="2x4", MIN_SLICES="2", MAX_SLICES="2", **in_containers
    )
    try:
        root = service.up()
        slices = service.status()["slices"]
        for host in (host for item in slices for host in item["hosts"]):
            assert _is_in_container(host["pid"])
        # With both of those killed that would end a task, only the kernel is left to do it.
        ended = [host["pid"] for host in slices[1]["hosts"]]
        keeper = _parent(ended[0])
        runner = _parent(keeper)
        for pid in (runner, keeper):
            os.kill(pid, signal.SIGSTOP)
        for pid in (runner, keeper):
            os.kill(pid, signal.SIGKILL)
        service.wait_for_slice(1, "READY", above=slices[1]["incarnation"])
        assert all(map(_has_ended, ended))
        _expect_output(_client(service), 2 * COMPUTED)
        os.killpg(root.pid, signal.SIGINT)
        assert root.wait(PATIENCE_S) == 0, output_of(root)
        _expect_no_trace(service, containers)
    finally:
        service.close()
