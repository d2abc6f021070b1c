# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Where a service is put through chaos: on one machine, or on a devcluster."""

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from slurm.devcluster.cluster import DevCluster, as_user
from slurm.devcluster.daemons import DaemonError
from slurm.devcluster.machines import MachineError
from tests.chaos import sightings
from tests.chaos.checker import Subject
from tests.chaos.judging import Bounds
from tests.chaos.sightings import Process, Sighting, Worker
from tests.e2e.service import ServiceUnderTest, output_of
from tests.slurm.service.service import START, SlurmService

from pathways_slurm.events import Reason

ONLOOKER = "CHAOS_ONLOOKER"
"""In the environment of what names the service's home and is no part of it."""

DRAINED = "chaos"
"""Why a node is drained by a fault: who drains it, resumes it."""

LEASE_S = 15.0
BUDGET = (8, 60.0)
SLICE_BUDGET = (12, 60.0)

_END_S = 90.0

# For a command of an administrator, who has more to do.
_PATIENCE_S = 4.0
_AILMENTS = "NodeHost:64|,StateLong:32|,GresUsed:64|,Reason:99|"

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
        """What an administrator does now and then, in words; "" if there is nothing to do."""

    def nodes(self) -> str:
        """In what state the cluster's nodes are, for people; "" where there are none."""

    def close(self) -> None:
        """Ends all that is left, whatever state it is in."""


class Actors:
    """The service's processes, as an administrator finds them.

    Args:
        look: A sighting of them that is not old: those that have ended since are left out.
    """

    def __init__(self, look: Callable[[], Sighting]) -> None:
        self._look = look

    @classmethod
    def at(cls, home: Path) -> "Actors":
        """Those of the service with that PATHWAYS_HOME, looked for anew each time."""

        def look() -> Sighting:
            found = sightings.processes(str(home), ONLOOKER)
            return Sighting(time.time(), tuple(found), tuple(sightings.workers(found)))

        return cls(look)

    def all(self) -> list[Process]:
        return [process for process in self._look().processes if sightings.lives(process)]

    def named(self, role: str) -> list[Process]:
        """By role, see :func:`sightings.role_of`; the oldest first."""
        found = [process for process in self.all() if sightings.role_of(process) == role]
        return sorted(found, key=lambda process: process.start)

    def workers(self, index: int | None = None) -> list[Worker]:
        """Of the newest incarnation of each slice, or of one."""
        found = [one for one in self._look().workers if sightings.lives(one.process)]
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
                if sightings.lives(process):
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

    def nodes(self) -> str:
        return ""

    def close(self) -> None:
        resume(self.service.home)
        self.service.close()


class SlurmStage:
    """A service that is a job of a devcluster, in the partition whose jobs can be preempted.

    Root, who alone can make a cluster of namespaces, names a ``user`` whose jobs they are and who
    owns the directory of ``home``.

    Attributes:
        in_hand: Nodes that a fault has, and gives back.
    """

    def __init__(
        self, home: Path, cluster: DevCluster, user: str | None = None, **settings: str
    ) -> None:
        self.slices = cluster.options.slices
        self.cluster = cluster
        self.user = user
        self.in_hand: set[str] = set()
        self._ailing = Ailing()
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
        """Makes good what Slurm does by itself and then waits for a human with.

        It drains nodes: a slurmctld that was killed while a job started finds it twice ("Duplicate
        jobid"). It gives nodes up that were switched on too slowly. And it loses count: "gres/tpu:
        job 2 dealloc of node tpu-0-0 bad node_offset 0" means that the node is idle and its TPUs
        stay taken, until slurmctld is started again.
        """
        before = self._ailing
        try:
            now = self._ailing = ailing(self._slurm("sinfo", "-h", "-N", "-O", _AILMENTS))
            if now.drained:
                nodes = _list(now.drained)
                self._slurm("scontrol", "update", f"nodename={nodes}", "state=resume")
                return f"drained nodes resumed: {nodes}"
        except subprocess.SubprocessError:
            # Slurm is away; later, then.
            return ""
        # What is seen once may just be on its way.
        if down := (now.down & before.down) - self.in_hand:
            # Next time, if the machine is too busy for it now.
            with contextlib.suppress(DaemonError, MachineError):
                for node in sorted(down):
                    self.cluster.power_on(node)
            return f"nodes that Slurm has given up switched on: {_list(down)}"
        if taken := now.taken & before.taken:
            self._ailing = Ailing()
            self.cluster.stop_slurmctld()
            self.cluster.start_slurmctld()
            return f"slurmctld started again, as TPUs of idle nodes stay taken: {_list(taken)}"
        return ""

    def nodes(self) -> str:
        try:
            told = self._slurm("sinfo", "-h", "-N", "-O", _AILMENTS)
        except subprocess.SubprocessError as error:
            return str(error)
        return ", ".join(
            sorted({" ".join(line.replace("|", " ").split()) for line in told.splitlines()})
        )

    def _slurm(self, *words: str) -> str:
        return self.cluster.run(*words, timeout_s=_PATIENCE_S).stdout

    def close(self) -> None:
        resume(self.service.home)
        self.service.close()


def _list(nodes: Iterable[str]) -> str:
    return ",".join(sorted(nodes))


@dataclass(frozen=True)
class Ailing:
    """Nodes that Slurm has drained, those that are down, and idle ones whose TPUs are taken."""

    drained: frozenset[str] = frozenset()
    down: frozenset[str] = frozenset()
    taken: frozenset[str] = frozenset()


def ailing(sinfo: str) -> Ailing:
    """The nodes that ail by sinfo's answer, whose columns are those of ``_AILMENTS``. Pure."""
    rows = [[column.strip() for column in line.split("|")[:4]] for line in sinfo.splitlines()]
    return Ailing(
        frozenset(node for node, state, _, why in rows if "drain" in state and why != DRAINED),
        frozenset(node for node, state, _, _ in rows if _plain(state) == "down"),
        frozenset(
            node
            for node, state, used, _ in rows
            if _plain(state) in ("idle", "powered_down") and _any_used(used)
        ),
    )


def _plain(state: str) -> str:
    """A node's state without the mark that may follow: "~" is off, "#" is being switched on."""
    return state.rstrip("~#%!*$@^-+")


def _any_used(gres: str) -> bool:
    """Of sinfo's GresUsed: "tpu:v6e:4" or "tpu:v6e:4(IDX:0-3)"."""
    return any(int(count) for count in re.findall(r":(\d+)(?=\(|$)", gres))


def resume(home: Path) -> None:
    """Continues whatever of the service is stopped, so that it can end."""
    send(signal.SIGCONT, *(one for one in Actors.at(home).all() if one.state in "Tt"))


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
