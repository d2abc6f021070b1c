# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Where a service is put through chaos: on one machine, or on a devcluster."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from slurm.devcluster.cluster import DevCluster, as_user
from tests.chaos import sightings
from tests.chaos.checker import Subject
from tests.chaos.judging import Bounds
from tests.chaos.sightings import Process, Worker
from tests.e2e.service import ServiceUnderTest, output_of
from tests.slurm.service.service import START, SlurmService

from pathways_slurm.events import Reason

ONLOOKER = "CHAOS_ONLOOKER"
"""In the environment of what names the service's home and is no part of it."""

LEASE_S = 15.0
BUDGET = (8, 60.0)
SLICE_BUDGET = (12, 60.0)

_END_S = 90.0

# Short windows: what has been restarted often waits long, and chaos has no time for that.
_SETTINGS = {
    "MIN_SLICES": "1",
    "PATHWAYS_LEASE_S": f"{LEASE_S:g}",
    "PATHWAYS_HEARTBEAT_TIMEOUT_S": "8",
    "PATHWAYS_TICK_S": "0.5",
    "PATHWAYS_RESTART_BUDGET": str(BUDGET[0]),
    "PATHWAYS_RESTART_WINDOW_S": f"{BUDGET[1]:g}",
    "PATHWAYS_SLICE_RESTART_BUDGET": str(SLICE_BUDGET[0]),
    "PATHWAYS_SLICE_RESTART_WINDOW_S": f"{SLICE_BUDGET[1]:g}",
}


class Stage(Protocol):
    """A service, started and ended again and again."""

    slices: int

    @property
    def service(self) -> ServiceUnderTest: ...

    @property
    def become(self) -> Sequence[str]:
        """What goes before a command to run it as the service's user."""

    def start(self) -> None:
        """Starts the service, and returns at once."""

    def stop(self) -> None:
        """Tells it to end, in order; returns at once."""

    def repair(self) -> str:
        """What an administrator does in the calm, in words; "" if there is nothing to do."""

    def close(self) -> None:
        """Ends all that is left, whatever state it is in."""


class Actors:
    """The service's processes, as an administrator finds them."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def all(self) -> list[Process]:
        return sightings.processes(str(self._home), ONLOOKER)

    def named(self, role: str) -> list[Process]:
        """By role, see :func:`sightings.role_of`; the oldest first."""
        found = [process for process in self.all() if sightings.role_of(process) == role]
        return sorted(found, key=lambda process: process.start)

    def workers(self, index: int | None = None) -> list[Worker]:
        """Of the newest incarnation of each slice, or of one."""
        found = sightings.workers(self.all())
        newest: dict[int, int] = {}
        for worker in found:
            newest[worker.slice] = max(worker.incarnation, newest.get(worker.slice, 0))
        return [
            worker
            for worker in sorted(found, key=lambda worker: (worker.slice, worker.host))
            if worker.incarnation == newest[worker.slice] and index in (None, worker.slice)
        ]


def send(number: signal.Signals, *to: Process) -> None:
    """Signals each; fine if it has ended, also if its pid is another's by now."""
    for process in to:
        with contextlib.suppress(OSError):
            descriptor = os.pidfd_open(process.pid)
            try:
                # Looked at after opening: from here on the descriptor can't mean another one.
                if sightings.start_of(process.pid) == process.start:
                    signal.pidfd_send_signal(descriptor, number)
            finally:
                os.close(descriptor)


def subject_of(stage: Stage, bounds: Bounds | None = None) -> Subject:
    """What the checker has to know of a stage's service."""
    return Subject(
        home=stage.service.home,
        known_reasons=frozenset(reason.value for reason in Reason),
        exempt=ONLOOKER,
        slurm=stage.cluster.env if isinstance(stage, SlurmStage) else None,
        user=stage.user if isinstance(stage, SlurmStage) else None,
        bounds=bounds
        or Bounds(lease_s=LEASE_S, component_budget=BUDGET, slice_budget=SLICE_BUDGET),
    )


class LocalStage:
    """A service of the local scheduler."""

    def __init__(self, home: Path, slices: int = 3, **settings: str) -> None:
        self.slices = slices
        self.become: list[str] = []
        self.service = ServiceUnderTest(
            home, **{**_SETTINGS, "MAX_SLICES": str(slices), "SLICE_SHAPE": "2x4", **settings}
        )
        self._root: subprocess.Popen[str] | None = None

    def start(self) -> None:
        if self._root is not None:
            output_of(self._root)
        self._root = self.service.start("up")

    def stop(self) -> None:
        if self._root is not None:
            self._root.send_signal(signal.SIGINT)

    def repair(self) -> str:
        return ""

    def close(self) -> None:
        resume(self.service.home)
        self.service.close()


class SlurmStage:
    """A service that is a job of a devcluster, in the partition whose jobs can be preempted.

    Root, who alone can make a cluster of namespaces, names a ``user`` whose jobs they are and who
    owns the directory of ``home``.
    """

    def __init__(
        self, home: Path, cluster: DevCluster, user: str | None = None, **settings: str
    ) -> None:
        self.slices = cluster.options.slices
        self.cluster = cluster
        self.user = user
        self.become: list[str] = [] if user is None else [str(word) for word in as_user(user)]
        self.service = SlurmService(
            home,
            cluster,
            **{
                **_SETTINGS,
                "MAX_SLICES": str(self.slices),
                "PATHWAYS_SLURM_PARTITION": "tpu-low",
                # Nodes whose workers are killed again and again would be made anew.
                "PATHWAYS_POWER_DOWN": "never",
                **settings,
            },
        )

    @property
    def job(self) -> str:
        """The service's own."""
        return self.service.jobs[-1]

    def start(self) -> None:
        # A node that fails would otherwise have the service start again by itself, as another job.
        words = ["--parsable", "--no-requeue", "--open-mode=append", f"--output={self.service.log}"]
        done = subprocess.run(
            [*self.become, "sbatch", *words, str(START)],
            env=self.service.environ,
            cwd=self.service.home.parent,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        )
        self.service.jobs.append(done.stdout.strip())

    def stop(self) -> None:
        self.cluster.run("scancel", self.job, check=False)

    def repair(self) -> str:
        """Resumes drained nodes: Slurm drains them by itself, and waits for a human.

        A slurmctld that was killed while a job started finds it twice ("Duplicate jobid").
        """
        drained = [node for node, state in self.cluster.node_states().items() if "drain" in state]
        if not drained:
            return ""
        nodes = ",".join(drained)
        self.cluster.run("scontrol", "update", f"nodename={nodes}", "state=resume", check=False)
        return f"drained nodes resumed: {nodes}"

    def close(self) -> None:
        resume(self.service.home)
        self.service.close()


def resume(home: Path) -> None:
    """Continues whatever of the service is stopped, so that it can end."""
    send(signal.SIGCONT, *(one for one in Actors(home).all() if one.state in "Tt"))


def wait_for[T](
    condition: Callable[[], T], timeout_s: float, what: str, meanwhile: Callable[[], object]
) -> T:
    """Asks until ``condition`` gives something true. Raises TimeoutError."""
    deadline = time.monotonic() + timeout_s
    while not (result := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {timeout_s:g} s: {what}")
        meanwhile()
        time.sleep(0.1)
    return result


def slices_of(status: dict[str, Any]) -> list[dict[str, Any]]:
    """The slices in a status.json."""
    found: list[dict[str, Any]] = status.get("slices", [])
    return found
