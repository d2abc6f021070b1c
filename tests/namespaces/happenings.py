# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Ways in which a slice goes, caused for real: by signals, orders to Slurm, nodes that fail."""

import contextlib
import os
import signal
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

import psutil
from slurm.devcluster.cluster import DevCluster, as_user
from slurm.devcluster.options import Node
from tests.namespaces.service import UsersService

WORKER_PORT = 29001
# Takes the port as soon as the worker that has it has ended.
_SQUATTER = f"""
import socket, sys, time
while True:
    try:
        taken = socket.create_server((sys.argv[1], {WORKER_PORT}))
        break
    except OSError:
        time.sleep(0.01)
time.sleep(600)
"""
# Takes the place of a job's directory as soon as that is removed, so that it can't be made again.
_IN_THE_WAY = 'until ln -sT /nonexistent "$1" 2>/dev/null; do sleep 0.02; done'


class Happening(ABC):
    """Something that befalls one slice.

    Attributes:
        way: Its line in the table of ways.
        spends: The cause that its restarts are counted as; None if they cost nothing.
        or_way: Another way that it may be taken for, which costs nothing; "" if there is none.
        returns: Whether the slice comes back.
        moves: Whether it comes back as another incarnation.
    """

    way: str
    spends: str | None = None
    or_way: str = ""
    returns: bool = True
    moves: bool = True

    def __init__(self, service: UsersService, index: int) -> None:
        self.service = service
        self.index = index
        self.nodes: list[str] = service.slices()[index]["nodes"]
        self.task: str = service.slices()[index]["task"]

    @property
    def cluster(self) -> DevCluster:
        return self.service.cluster

    @abstractmethod
    def cause(self) -> None:
        """Has it happen."""

    def once_told(self) -> None:
        """What follows once the supervisor has said what becomes of the slice: nothing."""
        return

    def end(self) -> None:
        """Leaves the cluster as it was; more than once, and also if it did not get so far."""
        return

    def scontrol(self, *words: str) -> None:
        self.cluster.run("scontrol", *words)

    def update_nodes(self, *words: str) -> None:
        self.scontrol("update", f"nodename={','.join(self.nodes)}", *words)


class Signal(Happening):
    """To the worker of the second host, which does not have the batch script."""

    number: signal.Signals

    def cause(self) -> None:
        os.kill(self.service.worker(self.index, 1), self.number)


class Crash(Signal):
    way, spends, number = "crash", "crash", signal.SIGKILL


class Exit(Signal):
    way, spends, number = "exit", "exit", signal.SIGINT


class Hang(Signal):
    way, spends, number = "hang", "hang", signal.SIGSTOP


class Error(Happening):
    """Some other program has the worker's port on a node, wherever the slice runs next."""

    way, spends = "error", "crash"
    _squatters: Sequence[subprocess.Popen[bytes]] = ()

    def cause(self) -> None:
        # Of ordinary processes on the nodes, which are not the cluster's.
        self._squatters = [
            subprocess.Popen(
                self.cluster.command_on(node.name, sys.executable, "-c", _SQUATTER, node.address)
            )
            for node in self._second_hosts()
        ]
        self.scontrol("requeue", self.task)

    def once_told(self) -> None:
        self.end()

    def end(self) -> None:
        # They are children of nsenter's, which must not end alone.
        for node in self._second_hosts() if self._squatters else ():
            for member in self.cluster.processes(node.name):
                with contextlib.suppress(psutil.NoSuchProcess):
                    if _SQUATTER in member.process.cmdline():
                        member.process.kill()
        for squatter in self._squatters:
            squatter.wait()
        self._squatters = ()

    def _second_hosts(self) -> list[Node]:
        """Of all slices: those that run keep their port."""
        return [node for node in self.cluster.nodes if node.name == f"tpu-{node.slice_index}-1"]


class Order(Happening):
    """An administrator's, about the task."""

    verb: str

    def cause(self) -> None:
        self.scontrol(self.verb, self.task)


class Requeue(Order):
    way = verb = "requeue"


class RequeueHold(Order):
    way, verb = "held", "requeuehold"


class Cancel(Order):
    way, returns = "cancel", False

    def cause(self) -> None:
        self.cluster.run("scancel", self.task)


class LaunchFailure(Happening):
    """Its nodes can't make a directory for the job."""

    way, spends = "launch", "launch"
    _links: Sequence[Path] = ()
    _processes: Sequence[subprocess.Popen[bytes]] = ()

    def cause(self) -> None:
        job = next(row["job"] for row in self.service.queue() if row["id"] == self.task)
        tpus = [node.name for node in self.cluster.nodes if node.slice_index is not None]
        spools = [self.cluster.layout.node_directory(node) / "spool" for node in tpus]
        self._links = [spool / f"job{int(job):05d}" for spool in spools]
        self._processes = [
            subprocess.Popen(["bash", "-c", _IN_THE_WAY, "bash", link]) for link in self._links
        ]
        self.scontrol("requeue", self.task)

    def once_told(self) -> None:
        self.end()

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        for link in self._links:
            if link.is_symlink():
                link.unlink()


class TimeLimit(Happening):
    way = "time limit"

    def cause(self) -> None:
        self.scontrol("update", f"jobid={self.task}", "EndTime=now+1")

    def end(self) -> None:
        # What Slurm made a limit of, in minutes, holds for the next runs, too. Refused while one is
        # ending, so it is lifted once the slice is back.
        unlimited = ("scontrol", "update", f"jobid={self.task}", "TimeLimit=UNLIMITED")
        self.cluster.run(*unlimited, check=False)


class Preemption(Happening):
    """A job of the better partition takes its nodes, and frees them once that is told."""

    way = "preemption"
    grace_s = 0
    _rival = ""

    def cause(self) -> None:
        self.scontrol("update", "PartitionName=tpu-low", f"GraceTime={self.grace_s}")
        argv = ["sbatch", "--parsable", "--partition=tpu", f"--nodes={len(self.nodes)}"]
        argv += [f"--nodelist={','.join(self.nodes)}", "--chdir=/tmp", "--output=/dev/null"]
        argv += ["--job-name=rival", "--wrap=sleep 600"]
        self._rival = self.cluster.run(*as_user(self.service.user, *argv)).stdout.strip()

    def once_told(self) -> None:
        self.end()

    def end(self) -> None:
        if self._rival:
            self.cluster.run("scancel", self._rival, check=False)


class PreemptionWithGrace(Preemption):
    way = "preemption, grace"
    grace_s = 6


class Drain(Happening):
    """By an administrator; a slice that runs goes on."""

    way, moves = "drain", False

    def cause(self) -> None:
        self.update_nodes("state=drain", "reason=test")

    def end(self) -> None:
        if "drain" in self.cluster.node_states()[self.nodes[0]]:
            self.update_nodes("state=resume")


class PowerDown(Happening):
    """By an administrator, by force: Slurm switches its nodes off, and on for the next job."""

    way = "power down"

    def cause(self) -> None:
        self.update_nodes("state=power_down_force")


class _NodeFailure(Happening):
    """Of the second node."""

    @property
    def node(self) -> str:
        return self.nodes[1]


class SlurmdKilled(_NodeFailure):
    """What runs on the node goes on."""

    way = "node"

    def cause(self) -> None:
        self.cluster.kill_slurmd(self.node)

    def end(self) -> None:
        if self.node not in self.cluster.pids:
            self.cluster.start_slurmd(self.node)


class PowerCut(_NodeFailure):
    """Whether its silence or Slurm's word for the node comes first depends on how busy Slurm is."""

    way, spends, or_way = "hang", "hang", "node"

    def cause(self) -> None:
        self.cluster.power_off(self.node)

    def end(self) -> None:
        if not self.cluster.processes(self.node):
            self.cluster.power_on(self.node)


class Partition(_NodeFailure):
    """What runs on the node goes on, and reaches nobody."""

    way, spends, or_way = "hang", "hang", "node"

    def cause(self) -> None:
        self.cluster.partition(self.node)

    def end(self) -> None:
        self.cluster.heal(self.node)
