# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Brings a cluster up, and ends it whatever state it is in."""

import os
import pwd
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from slurm.devcluster import links, members, privileges
from slurm.devcluster.addresses import AddressError, Addresses, reserved, reserved_private
from slurm.devcluster.daemons import DaemonError, Daemons, tail
from slurm.devcluster.directory import Directory, DirectoryError, Record
from slurm.devcluster.machines import MachineError, machines_of
from slurm.devcluster.options import Options, OptionsError
from slurm.devcluster.programs import ProgramError, Programs, find_programs
from slurm.devcluster.render import Layout, directories, files

CHECKOUT = Path(__file__).resolve().parents[2]

# How long each may take, in seconds: far above what it takes, below anyone's patience.
LOCK_S = 60.0
IDLE_S = 60.0
_CLIENT_S = 15.0
_KILL_S = 15.0
# Jobs may use their SIGTERM to clean up.
_JOB_GRACE_S = 3.0
_POLL_S = 0.05

Say = Callable[[str], None]


class ClusterError(Exception):
    """The cluster did not come up, or something of it did not end."""


class DifferentOptionsError(Exception):
    """A cluster runs there with other options."""


def up(options: Options, say: Say) -> Layout:
    """Brings the cluster up, or finds that it is up; afterwards all nodes are idle.

    A cluster that is there but not whole (a killed slurmctld or munged, an up that was interrupted)
    is ended and begun anew. If anything goes wrong, or is interrupted, nothing is left running.

    Args:
        options: What to bring up.
        say: Is told of progress, a line each.

    Raises:
        OptionsError: Something is wrong with the options or this machine; nothing was started.
        DifferentOptionsError: A cluster with other options runs in that directory.
        ClusterError: It did not come up.
    """
    programs, user = _check(options)
    directory = Directory(options.directory)
    try:
        with directory.locked(LOCK_S):
            return _up(directory, options, programs, user, say)
    except DirectoryError as error:
        raise OptionsError([f"--dir: {error}"]) from error
    except AddressError as error:
        raise OptionsError([str(error)]) from error
    except links.LinkError as error:
        raise ClusterError(str(error)) from error


def down(path: Path, *, keep_logs: bool = False) -> bool:
    """Ends every process of the cluster at ``path`` and removes its network and the directory.

    Works on whatever is there: a whole cluster, half of one, processes whose directory is gone.

    Returns:
        Whether there was anything to end or to remove.

    Raises:
        OptionsError: The directory is not that of a cluster, or not the caller's.
        ClusterError: Something does not end, not even by SIGKILL, or can't be removed.
    """
    directory = Directory(path)
    if os.environ.get(members.DIRECTORY_VARIABLE) == str(path):
        raise OptionsError([f"a job of the cluster {path} can't end it; call this from elsewhere"])
    if not path.exists() and not members.find(path) and not links.existing(path):
        return False
    try:
        with directory.locked(LOCK_S):
            end(path)
            if keep_logs:
                directory.clear(keep_logs=True)
            else:
                directory.remove()
    except DirectoryError as error:
        raise OptionsError([f"--dir: {error}"]) from error
    return True


def end(path: Path) -> None:
    """Ends what is outside of the cluster's directory: its processes, then its network.

    Daemons end at once, jobs after a moment for their SIGTERM. Namespaces go with the last process
    in them.

    Raises:
        ClusterError: Something does not end.
    """
    _end_processes(path)
    try:
        links.remove(path)
    except links.LinkError as error:
        raise ClusterError(str(error)) from error


def _end_processes(path: Path) -> None:
    # slurmctld and its power programs first, which start daemons, then the daemons, which start
    # jobs: so nothing new comes. What they would save is removed anyway.
    members.kill_all(
        lambda: [
            one
            for one in members.find(path)
            if one.node is None and one.daemon in ("slurmctld", None)
        ],
        _KILL_S,
    )
    members.kill_all(
        lambda: [one for one in members.find(path) if one.daemon in ("slurmctld", "slurmd")],
        _KILL_S,
    )
    jobs = [one for one in members.find(path) if one.daemon is None]
    members.terminate(jobs)
    members.wait_gone(jobs, _JOB_GRACE_S)
    if left := members.kill_all(lambda: members.find(path), _KILL_S):
        raise ClusterError(
            f"still there {_KILL_S:g} s after SIGKILL: {', '.join(str(member) for member in left)}"
        )


def _check(options: Options) -> tuple[Programs, str]:
    """Everything that can be wrong before anything is touched, in one go."""
    faults = options.faults()
    user = ""
    if options.namespaces:
        faults += [f"--namespaces: {fault}" for fault in privileges.lacking()]
        faults += _unreachable(options.directory)
    elif os.getuid() == 0:
        faults.append(
            "this is root: jobs never run as root; start it as an ordinary user, or with "
            "--namespaces, for the jobs of ordinary users"
        )
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        faults.append(f"uid {os.getuid()} has no name, which Slurm needs; add it to /etc/passwd")
    try:
        programs = find_programs()
    except ProgramError as error:
        faults.append(str(error))
    if faults:
        raise OptionsError(faults)
    return programs, user


def _unreachable(path: Path) -> list[str]:
    """What keeps other users from the cluster's directory."""
    for parent in reversed(path.parents):
        if not parent.is_dir():
            return [f"--dir {path}: make {parent} first, with a mode that lets all users through"]
        if not parent.stat().st_mode & 0o001:
            mode = parent.stat().st_mode & 0o777
            return [
                f"--dir {path} is for all users of the cluster, but {parent} has mode {mode:o}; "
                "valid: a directory whose parents let others through"
            ]
    return []


def _up(directory: Directory, options: Options, programs: Programs, user: str, say: Say) -> Layout:
    def layout(network: str, port: int) -> Layout:
        return Layout(
            options, network, port, user, programs.version, Path(sys.executable), CHECKOUT
        )

    record = directory.read_record()
    if record is not None and is_whole(options.directory):
        _compare(record.options, options)
        say(f"The cluster in {options.directory} is up already, with these options")
        return layout(record.network, record.controller_port)
    if record is not None or members.find(options.directory):
        say(f"Ending what is left of a cluster in {options.directory}")
    end(options.directory)
    directory.clear()
    try:
        with _reserved(options) as addresses:
            chosen = layout(addresses.network, addresses.controller_port)
            _write(directory, chosen)
            _start(chosen, programs)
            _wait_idle(chosen, programs, say)
            directory.write_record(Record(options, addresses.network, addresses.controller_port))
            return chosen
    except BaseException:
        end(options.directory)
        directory.remove()
        raise


def _reserved(options: Options) -> AbstractContextManager[Addresses]:
    if options.namespaces:
        return reserved_private(options.network)
    return reserved(options.network, options.cpu_nodes + options.slices * options.hosts_per_slice)


def is_whole(path: Path) -> bool:
    """Whether munged and slurmctld run. Nodes may be down: that is a state of a cluster."""
    found = members.find(path)
    return all(members.daemon(found, name) is not None for name in ("munged", "slurmctld"))


def _compare(running: Options, asked: Options) -> None:
    differences = []
    for option in asked.__slots__:
        have, want = getattr(running, option), getattr(asked, option)
        # No network asked for: any will do.
        if have != want and not (option == "network" and want is None):
            differences.append(f"{option} is {have}, asked for is {want}")
    if differences:
        raise DifferentOptionsError(
            f"a cluster with other options runs in {asked.directory}: {'; '.join(differences)}. "
            "End it first (down.sh), or choose another --dir"
        )


def _write(directory: Directory, layout: Layout) -> None:
    for relative, mode in directories(layout):
        directory.make(relative, mode)
    for file in files(layout):
        path = directory.path / file.path
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, file.mode)
        with os.fdopen(descriptor, "w", encoding="utf-8") as out:
            out.write(file.text)
        path.chmod(file.mode)


def _start(layout: Layout, programs: Programs) -> None:
    machines = machines_of(layout.options, layout.network, layout.controller_port)
    daemons = Daemons(layout.directory, programs, machines)
    names = [node.name for node in layout.nodes]
    try:
        machines.prepare()
        machines.boot(names)
        daemons.start_munged()
        daemons.start_slurmctld()
        daemons.start_slurmds(names)
    except (MachineError, DaemonError, OSError) as error:
        raise ClusterError(str(error)) from error


def client_environment(layout_conf: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """An environment for Slurm's commands: the given one, for this cluster and no job."""
    dropped = ("SLURM", "SBATCH_", "SRUN_", "SALLOC_", "SQUEUE_", "SINFO_", "SCANCEL_")
    kept = {name: value for name, value in environment.items() if not name.startswith(dropped)}
    return kept | {"SLURM_CONF": str(layout_conf)}


def node_states(layout: Layout, sinfo: Path) -> dict[str, str]:
    """Node → state as sinfo's %T has it; empty if slurmctld does not answer."""
    try:
        done = subprocess.run(
            [sinfo, "-h", "-N", "-o", "%N %T"],
            env=client_environment(layout.conf, os.environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            timeout=_CLIENT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {}
    if done.returncode != 0:
        return {}
    return dict(line.split(maxsplit=1) for line in done.stdout.splitlines())


def _wait_idle(layout: Layout, programs: Programs, say: Say) -> None:
    deadline = time.monotonic() + IDLE_S
    names = [node.name for node in layout.nodes]
    said = ""
    while True:
        states = node_states(layout, programs.sinfo)
        idle = [name for name in names if states.get(name) == "idle"]
        if len(idle) == len(names):
            return
        if (line := f"{len(idle)} of {len(names)} nodes are idle") != said:
            say(line)
            said = line
        if time.monotonic() > deadline:
            others = ", ".join(
                f"{name} {states.get(name, 'unknown')}" for name in names if name not in idle
            )
            raise ClusterError(
                f"not idle after {IDLE_S:g} s: {others}; slurmctld's log ends with:\n"
                + tail(layout.controller_directory / "slurmctld.log")
            )
        time.sleep(_POLL_S)
