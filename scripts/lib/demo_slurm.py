# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The demo's stage on which a real Slurm runs the service and its slices.

The Slurm is a devcluster of the demo's own, with nothing else in its queue.
"""

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Set
from pathlib import Path
from typing import Any

import psutil
from slurm.devcluster import lifecycle, members
from slurm.devcluster.directory import Directory
from slurm.devcluster.options import Options, OptionsError

from demo_stage import CHECKOUT, Child, DemoError, Stage, Step, await_no_process
from demo_story import Check, Host, Victim

CRED_EXPIRE_S = 5
"""Life of a job credential, for as long as which Slurm lets a requeued task wait."""

_SCRIPT = CHECKOUT / "scripts" / "start_pathways.sh"
_KEEPER = CHECKOUT / "scripts" / "lib" / "demo_cluster.py"
_DIRECTORY = "slurm"

# How long each may take, in seconds.
_CLUSTER_S = 90.0
_SERVICE_S = 90.0
_COMMAND_S = 30.0
_QUEUE_S = 60.0
_KEEPER_END_S = 120.0
_LOOK_AGAIN_S = 0.5
_STATE_AGAIN_S = 1.0

# Of a job that has not ended.
_LIVE = ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "REQUEUED")


def cluster_options(home: Path, slices: int, hosts: int, chips_per_host: int) -> Options:
    """The devcluster of a demo in ``home``: a CPU node, and the nodes of ``slices`` slices."""
    return Options(
        directory=home / _DIRECTORY,
        slices=slices,
        hosts_per_slice=hosts,
        chips_per_host=chips_per_host,
        cred_expire_s=CRED_EXPIRE_S,
    )


class SlurmStage(Stage):
    """A service of ``sbatch scripts/start_pathways.sh`` on a devcluster."""

    # cred_expire, and a few looks of Slurm's and the service's.
    back_within_s = CRED_EXPIRE_S + 10.0
    all_down = "everything was brought down: job, array tasks, processes, cluster.env and Slurm"

    def __init__(self, home: Path, settings: Mapping[str, str], options: Options) -> None:
        # Slurm's latencies are seconds; looking once a second hides none behind the service's own.
        super().__init__(
            home,
            {
                **settings,
                # This one, whatever has been set up for clusters besides.
                "PATHWAYS_ENVIRONMENT": sys.prefix,
                "PATHWAYS_SLURM_PARTITION": "tpu",
                "PATHWAYS_TICK_S": "1",
            },
        )
        self._options = options
        self._directory = Directory(options.directory)
        self._cluster: Child | None = None
        self._job: str | None = None
        self._victim: Victim | None = None
        self._restarts: int | None = None

    def bring_up(self) -> Iterator[Step]:
        options = self._options
        argv: list[str | Path] = [sys.executable, _KEEPER, "--dir", options.directory]
        for name in ("slices", "hosts_per_slice", "chips_per_host", "cred_expire_s"):
            argv += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
        env = {**self._env, "PYTHONPATH": str(CHECKOUT)}
        self._cluster = Child(argv, env, self.home / "devcluster.log")
        yield Step(
            "starting Slurm",
            f"Slurm up ({options.slices} slices of {options.hosts_per_slice} nodes; a requeued "
            f"task waits for cred_expire={options.cred_expire_s} s, by default 120)",
            _CLUSTER_S,
            lambda: self._is_up,
            self._cluster,
        )
        self._env = lifecycle.client_environment(options.directory / "slurm.conf", self._env)
        self._job = self._submit()
        yield Step(
            f"starting the service (sbatch start_pathways.sh: job {self._job})",
            "service up",
            _SERVICE_S,
            self.cluster_env.exists,
            _ServiceJob(self._job, self.service_log, self._state_of),
        )

    @property
    def _is_up(self) -> bool:
        return self._directory.read_record() is not None

    def _submit(self) -> str:
        argv = ["sbatch", "--parsable", f"--output={self.service_log}", f"--chdir={self.home}"]
        return self._slurm(*argv, str(_SCRIPT)).strip()

    def _slurm(self, *argv: str) -> str:
        """What one of Slurm's commands prints. Raises DemoError."""
        try:
            done = self._run(*argv, timeout_s=_COMMAND_S)
        except subprocess.TimeoutExpired:
            raise DemoError(f"{argv[0]} did not end within {_COMMAND_S:.0f} s") from None
        if done.returncode != 0:
            raise DemoError(f"{' '.join(argv)} failed: {done.stderr.strip()}")
        return done.stdout

    def _state_of(self, job: str) -> str | None:
        """Slurm's word for the job's state; None if Slurm does not say."""
        with contextlib.suppress(DemoError):
            return self._slurm("squeue", "-h", "-t", "all", "-j", job, "-o", "%T").strip() or None
        return None

    def _worker_pid(self, index: int, number: int, host: Host) -> int:
        # Slurm knows no pids of a job's processes; their environment tells who they are.
        environments = {}
        for one in members.find(self._options.directory):
            if one.daemon is None and one.node == host.node:
                with contextlib.suppress(psutil.Error):
                    environments[one.process.pid] = one.process.environ()
        found = workers_among(environments, index, number)
        if len(found) != 1:
            raise DemoError(f"{host.node} should run one worker of slice {index}, runs {found}")
        return found[0]

    def look_back(self, victim: Victim) -> None:
        self._victim = victim
        said = self._slurm(
            "squeue", "-h", "-r", "-t", "all", "-j", victim.task,
            "-O", "JobArrayID:0|,RestartCnt:0|",
        )  # fmt: skip
        self._restarts = restarts_in(said, victim.task)

    def checks(self) -> list[Check]:
        task = self._victim.task if self._victim else "of the slice"
        seen = "not seen" if self._restarts is None else str(self._restarts)
        return [
            Check(
                self._restarts == 1, f"Slurm has requeued the task {task} once: Restarts is {seen}"
            )
        ]

    def summary(self) -> dict[str, Any]:
        return {"slurm_restarts": self._restarts}

    def _end_service(self) -> list[str]:
        if self._cluster is None:
            return []
        faults = self._end_jobs(self._cluster) if self._is_up else []
        self._cluster.end(_KEEPER_END_S)
        try:
            # Finds nothing to end, unless the keeper could not.
            lifecycle.down(self._options.directory, keep_logs=True)
        except (lifecycle.ClusterError, OptionsError) as error:
            faults.append(f"Slurm is not down: {error}")
        return faults

    def _end_jobs(self, cluster: Child) -> list[str]:
        """Cancels the service's job, which has to end everything else of the service."""
        # Interrupted between Slurm's start and the job's, there is no job.
        if self._job is None:
            return []
        faults = []
        try:
            self._slurm("scancel", self._job)
            if left := self._await_empty_queue():
                faults.append(f"jobs are left in the queue: {'; '.join(left)}")
        except DemoError as error:
            faults.append(str(error))
        # Before Slurm ends, because that would end them too.
        if processes := await_no_process(self.home, but=lambda: self._slurms_own(cluster)):
            faults.append(f"processes outlive their jobs: {'; '.join(processes)}")
        return faults

    def _await_empty_queue(self) -> list[str]:
        deadline = time.monotonic() + _QUEUE_S
        while True:
            left = self._slurm("squeue", "-h", "-r", "-o", "%i %j %T").splitlines()
            if not left or time.monotonic() > deadline:
                return left
            time.sleep(_LOOK_AGAIN_S)

    def _slurms_own(self, cluster: Child) -> Set[int]:
        found = members.find(self._options.directory)
        return {cluster.pid} | {one.process.pid for one in found if one.daemon is not None}


class _ServiceJob:
    """The service's batch job, as something that is waited for."""

    def __init__(self, job: str, log: Path, state_of: Callable[[str], str | None]) -> None:
        self.log = log
        self._job = job
        self._state_of = state_of
        self._looked = 0.0

    def ended(self) -> str | None:
        """How it ended; None also if Slurm does not say, or was asked only just now."""
        if time.monotonic() - self._looked < _STATE_AGAIN_S:
            return None
        self._looked = time.monotonic()
        state = self._state_of(self._job)
        return None if state is None or state in _LIVE else f"job {self._job} ended as {state}"


def workers_among(
    environments: Mapping[int, Mapping[str, str]], index: int, number: int
) -> list[int]:
    """Of these processes, by pid, the workers of host ``number`` of slice ``index``."""
    wanted = (str(index), str(number))
    names = ("PATHWAYS_SLICE_INDEX", "PATHWAYS_HOST_INDEX")
    return [pid for pid, env in environments.items() if tuple(map(env.get, names)) == wanted]


def restarts_in(said: str, task: str) -> int | None:
    """A task's count of restarts in squeue's lines ``TASK|COUNT|``; None if it has no line."""
    for line in said.splitlines():
        name, _, count = line.strip().rstrip("|").partition("|")
        if name.strip() == task:
            return int(count)
    return None
