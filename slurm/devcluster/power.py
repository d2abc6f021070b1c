# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Switches nodes off and on. Slurm runs it as Suspend-, Resume- and ResumeFailProgram.

Slurm takes a node for off some seconds after it had its program started, and may have it switched
on again while a busy machine has not got far with that: the latest order for a node counts.
"""

import contextlib
import fcntl
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from slurm.devcluster import members
from slurm.devcluster.daemons import DaemonError, Daemons
from slurm.devcluster.directory import Directory
from slurm.devcluster.machines import MachineError, Machines, machines_of
from slurm.devcluster.programs import Programs, find_programs

_KILL_S = 15.0
_EXPAND_S = 10.0


def switch_off(directory: Path, nodes: Sequence[str]) -> list[members.Member]:
    """Ends all that runs on the nodes, as a power cut would.

    Returns:
        What could not be ended.
    """

    def theirs() -> list[members.Member]:
        return [one for one in members.find(directory) if one.node in nodes]

    # Where nodes have an init, the kernel ends everything with it at once.
    inits = [one for one in theirs() if one.daemon == members.INIT]
    members.kill(inits)
    members.wait_gone(inits, _KILL_S)
    return members.kill_all(theirs, _KILL_S)


def switch_on(machines: Machines, daemons: Daemons, directory: Path, nodes: Sequence[str]) -> None:
    """Boots the nodes that are off.

    Raises:
        MachineError: A node did not boot.
        DaemonError: A slurmd did not start.
    """
    found = members.find(directory)
    off = [node for node in nodes if members.daemon(found, "slurmd", node) is None]
    machines.boot(off)
    daemons.start_slurmds(off, rebooted=True)


def main(arguments: Sequence[str]) -> int:
    """``off|on DIRECTORY NODES GIVEN``.

    NODES are as Slurm writes them (tpu-0-[0-1]); GIVEN is when the order was, in microseconds.
    """
    verb, directory, expression, given = arguments[0], Path(arguments[1]), *arguments[2:4]
    programs = find_programs()
    nodes = subprocess.run(
        [programs.scontrol, "show", "hostnames", expression],
        env={"SLURM_CONF": str(directory / "slurm.conf")},
        stdout=subprocess.PIPE,
        text=True,
        timeout=_EXPAND_S,
        check=True,
    ).stdout.split()
    verbs: dict[str, Callable[[Sequence[str]], str]] = {
        "off": lambda names: _off(directory, names),
        "on": lambda names: _on(directory, programs, names),
    }
    with in_order(directory, nodes, int(given)) as due:
        problem = verbs[verb](due) if due else ""
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    overtaken = [node for node in nodes if node not in due]
    words = f" (overtaken: {' '.join(overtaken)})" if overtaken else ""
    print(f"{now} {verb} {' '.join(due)}: {problem or 'done'}{words}", flush=True)
    return 1 if problem else 0


@contextlib.contextmanager
def in_order(directory: Path, nodes: Sequence[str], given: int) -> Iterator[list[str]]:
    """Those of the nodes that had no later order than this one; no other is followed meanwhile.

    Args:
        directory: Of the cluster.
        nodes: That the order is for.
        given: When it was; an integer that grows.

    Raises:
        OSError: The cluster is gone.
    """
    with contextlib.ExitStack() as stack:
        due = []
        for node in sorted(nodes):
            file = stack.enter_context((directory / "power" / f"{node}.order").open("a+"))
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            if int(file.read() or 0) <= given:
                file.truncate(0)
                file.write(str(given))
                file.flush()
                due.append(node)
        yield due


def _off(directory: Path, nodes: Sequence[str]) -> str:
    left = switch_off(directory, nodes)
    return f"still there: {', '.join(map(str, left))}" if left else ""


def _on(directory: Path, programs: Programs, nodes: Sequence[str]) -> str:
    record = Directory(directory).read_record()
    if record is None:
        return f"{directory} has no record of a cluster that is up"
    machines = machines_of(record.options, record.network, record.controller_port)
    try:
        switch_on(machines, Daemons(directory, programs, machines), directory, nodes)
    except (MachineError, DaemonError, OSError) as error:
        return str(error)
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
