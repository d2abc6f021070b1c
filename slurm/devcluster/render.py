# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The cluster's files, as text. Pure."""

import shlex
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path

from slurm.devcluster.machines import CONTROLLER
from slurm.devcluster.members import DIRECTORY_VARIABLE, NODE_VARIABLE
from slurm.devcluster.options import Node, Options, nodes_of

# The first version that knows CgroupPlugin=disabled, and from then on needs it: its slurmd ends
# where it can't have cgroups. Older ones end because of the word.
_CGROUP_DISABLED_SINCE = (24, 5)

# What is for the daemons alone, and their programs.
_PRIVATE_DIR = 0o700
_PRIVATE_PROGRAM = 0o700


@dataclass(frozen=True, slots=True)
class Layout:
    """A cluster with all choices made.

    Attributes:
        options: As asked for.
        network: That of the nodes.
        controller_port: Of slurmctld; the nodes' ports follow.
        user: Whose daemons and jobs they are.
        version: Of Slurm, such as (22, 5).
        python: That runs the power programs.
        checkout: That they are imported from.
    """

    options: Options
    network: str
    controller_port: int
    user: str
    version: tuple[int, int]
    python: Path
    checkout: Path

    @property
    def directory(self) -> Path:
        return self.options.directory

    @property
    def conf(self) -> Path:
        return self.directory / "slurm.conf"

    @property
    def munge_socket(self) -> Path:
        return self.directory / "munge" / "socket"

    @property
    def controller_directory(self) -> Path:
        """Also slurmctld's working directory, by which members.py knows it."""
        return self.directory / "controller"

    def node_directory(self, node: str) -> Path:
        """Also the working directory of the node's slurmd and of its job steps' daemons."""
        return self.directory / "nodes" / node

    @property
    def nodes(self) -> tuple[Node, ...]:
        return nodes_of(self.options, self.network, self.controller_port + 1)

    @property
    def controller_host(self) -> str:
        """slurmctld's host as slurm.conf names it, with the address that all reach it at."""
        if self.options.namespaces:
            return f"{CONTROLLER}({IPv4Network(self.network).network_address + 1})"
        return "localhost(127.0.0.1)"


@dataclass(frozen=True, slots=True)
class File:
    """A file to write: its path below the cluster's directory, its text, its mode."""

    path: str
    text: str
    mode: int


@dataclass(frozen=True, slots=True)
class _Modes:
    """Modes of what every user of the cluster needs: of whom it is for alone, or of all."""

    file: int
    program: int
    directory: int
    spool: int


_ONE_USER = _Modes(file=0o600, program=0o700, directory=0o700, spool=0o700)
# Through the directories, but not to see what else is in there. Slurm wants its spool like this.
_ALL_USERS = _Modes(file=0o644, program=0o755, directory=0o711, spool=0o755)


def _modes(layout: Layout) -> _Modes:
    return _ALL_USERS if layout.options.namespaces else _ONE_USER


def directories(layout: Layout) -> list[tuple[str, int]]:
    """Every directory below the cluster's and itself (""), with its mode, parents first."""
    modes = _modes(layout)
    found = [("", modes.directory), ("munge", modes.directory), ("nodes", modes.directory)]
    found += [(path, _PRIVATE_DIR) for path in ("power", "controller", "controller/state")]
    for node in layout.nodes:
        found += [(f"nodes/{node.name}", modes.directory)]
        found += [(f"nodes/{node.name}/spool", modes.spool)]
    return found


def files(layout: Layout) -> list[File]:
    """Every file that the daemons and their users read."""
    modes = _modes(layout)
    found = [
        File("slurm.conf", slurm_conf(layout), modes.file),
        File("gres.conf", gres_conf(layout), modes.file),
        File("topology.conf", topology_conf(layout), modes.file),
        File("task_prolog", task_prolog(layout), modes.program),
        File("power/suspend", power_program(layout, "off"), _PRIVATE_PROGRAM),
        File("power/resume", power_program(layout, "on"), _PRIVATE_PROGRAM),
        File("power/resume_fail", power_program(layout, "off"), _PRIVATE_PROGRAM),
        File("env.sh", f"export SLURM_CONF={shlex.quote(str(layout.conf))}\n", modes.file),
    ]
    if layout.version >= _CGROUP_DISABLED_SINCE:
        found.append(File("cgroup.conf", "CgroupPlugin=disabled\n", modes.file))
    if layout.options.namespaces:
        found.append(File("hosts", hosts(layout), modes.file))
    return found


def hosts(layout: Layout) -> str:
    """The machines' /etc/hosts: on a cluster, their names resolve."""
    lines = ["127.0.0.1 localhost"]
    lines += [f"{IPv4Network(layout.network).network_address + 1} {CONTROLLER}"]
    lines += [f"{node.address} {node.name}" for node in layout.nodes]
    return "\n".join(lines) + "\n"


def slurm_conf(layout: Layout) -> str:
    """slurm.conf: as near to a real cluster as one machine and one user allow."""
    options, directory = layout.options, layout.directory
    nodes = directory / "nodes"
    tpu_nodes = ",".join(node.name for node in layout.nodes if node.slice_index is not None)
    cpu_nodes = ",".join(node.name for node in layout.nodes if node.slice_index is None)
    lines = f"""\
ClusterName=devcluster
SlurmctldHost={layout.controller_host}
SlurmctldPort={layout.controller_port}
SlurmUser={layout.user}
SlurmdUser={layout.user}
AuthType=auth/munge
AuthInfo=socket={layout.munge_socket},cred_expire={options.cred_expire_s}

StateSaveLocation={layout.controller_directory}/state
SlurmctldPidFile={layout.controller_directory}/slurmctld.pid
SlurmctldLogFile={layout.controller_directory}/slurmctld.log
SlurmdPidFile={nodes}/%n/slurmd.pid
SlurmdLogFile={nodes}/%n/slurmd.log
SlurmdSpoolDir={nodes}/%n/spool
SlurmdParameters=config_overrides
DebugFlags=NO_CONF_HASH
MailProg=/bin/true

ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
TaskProlog={directory}/task_prolog
JobAcctGatherType=jobacct_gather/none
MpiDefault=none

SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=bf_interval=1,sched_interval=5,batch_sched_delay=0
TopologyPlugin=topology/tree
GresTypes=tpu
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1

ReturnToService=2
SlurmdTimeout=10
KillWait={options.kill_wait_s}
MessageTimeout=5
TCPTimeout=2
MinJobAge={options.min_job_age_s}
UnkillableStepTimeout=300

SlurmctldParameters=power_save_interval=1,power_save_min_interval=0
SuspendProgram={directory}/power/suspend
ResumeProgram={directory}/power/resume
ResumeFailProgram={directory}/power/resume_fail
SuspendTime=86400
SuspendTimeout=4
ResumeTimeout=60

""".splitlines()
    if options.namespaces:
        # Not on this machine's other addresses. Jobs never run as root.
        lines += ["CommunicationParameters=NoCtldInAddrAny", "DisableRootJobs=YES", ""]
    lines += [_node_line(node, options) for node in layout.nodes]
    lines += [
        "",
        f"PartitionName=cpu Nodes={cpu_nodes} Default=YES",
        f"PartitionName=tpu Nodes={tpu_nodes} OverSubscribe=EXCLUSIVE PriorityTier=10 "
        "PreemptMode=OFF",
        f"PartitionName=tpu-low Nodes={tpu_nodes} OverSubscribe=EXCLUSIVE PriorityTier=1 "
        f"PreemptMode=REQUEUE GraceTime={options.grace_time_s}",
    ]
    return "\n".join(lines) + "\n"


def _node_line(node: Node, options: Options) -> str:
    # A host name of its own: several slurmd of one host name would have to share an address. A port
    # of its own where nodes share a machine: slurmd binds every address of it.
    line = (
        f"NodeName={node.name} NodeHostname={node.name} NodeAddr={node.address} Port={node.port} "
        "CPUs=16 RealMemory=16000"
    )
    if node.slice_index is None:
        return line
    gres = f"tpu:{options.tpu_type}:{options.chips_per_host}"
    return f"{line} Gres={gres} Feature=tpu,slice{node.slice_index}"


def gres_conf(layout: Layout) -> str:
    """gres.conf: chips that are numbers only."""
    options = layout.options
    return "".join(
        f"NodeName={node.name} Name=tpu Type={options.tpu_type} Count={options.chips_per_host}\n"
        for node in layout.nodes
        if node.slice_index is not None
    )


def topology_conf(layout: Layout) -> str:
    """topology.conf: a switch per slice, one for the CPU nodes, and above them one or none."""
    switches: dict[str, list[str]] = {}
    for node in layout.nodes:
        name = "cpu" if node.slice_index is None else f"slice{node.slice_index}"
        switches.setdefault(name, []).append(node.name)
    lines = [f"SwitchName={name} Nodes={','.join(nodes)}" for name, nodes in switches.items()]
    if layout.options.root_switch:
        lines.append(f"SwitchName=root Switches={','.join(switches)}")
    return "\n".join(lines) + "\n"


def task_prolog(layout: Layout) -> str:
    """Marks every task, so that its processes are recognised whoever their parent is by then."""
    return (
        "#!/bin/sh\n"
        f"echo 'export {DIRECTORY_VARIABLE}={layout.directory}'\n"
        f'echo "export {NODE_VARIABLE}=$SLURMD_NODENAME"\n'
    )


def power_program(layout: Layout, verb: str) -> str:
    """Switches the nodes that are its only argument on or off."""
    # Streams: a slurmd that is started with Slurm's own can't launch any step.
    # -P and the cleared variables: Slurm's environment here is that of whoever started slurmctld.
    return f"""\
#!/bin/bash
given="${{EPOCHREALTIME/[.,]/}}"
exec </dev/null >>{shlex.quote(str(layout.directory / "power" / "log"))} 2>&1
unset PYTHONHOME PYTHONSTARTUP
export PYTHONPATH={shlex.quote(str(layout.checkout))} PYTHONNOUSERSITE=1
exec {shlex.quote(str(layout.python))} -P -m slurm.devcluster.power {verb} \
	{shlex.quote(str(layout.directory))} "$1" "${{given}}"
"""
