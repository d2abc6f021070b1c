# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The commands ``up`` and ``down``. Entry points: up.sh and down.sh."""

import os
import pwd
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import click
from slurm.devcluster import lifecycle
from slurm.devcluster.options import Options, OptionsError
from slurm.devcluster.render import Layout

from pathways_slurm.topology import TPU_TYPES

EXIT_FAILED = 1
EXIT_USAGE = 2

_DEFAULTS = Options(Path())
_EXIT_CODES = """\b
Exit codes:
  0  done
  1  failed; nothing was left running
  2  wrong options, or something is missing on this machine; nothing was done"""


def _default_directory() -> Path:
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = str(os.getuid())
    return Path(tempfile.gettempdir()) / f"pathways-devcluster-{user}"


def _whole(ctx: click.Context, param: click.Parameter, directory: Path) -> Path:
    """The directory from the root on, without "..", with its links as they were given."""
    del ctx, param
    # Path.resolve would follow the links.
    return Path(os.path.normpath(Path.cwd() / directory))


_dir_option = click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path),
    default=_default_directory,
    callback=_whole,
    show_default="pathways-devcluster-USER in $TMPDIR or /tmp",
    help="Directory of everything that belongs to the cluster.",
)


def _number[F: Callable[..., object]](field: str, meaning: str) -> Callable[[F], F]:
    """The option for a number of the cluster's Options; a field in seconds ends with _s."""
    return click.option(
        f"--{field.removesuffix('_s').replace('_', '-')}",
        field,
        type=int,
        metavar="S" if field.endswith("_s") else None,
        default=getattr(_DEFAULTS, field),
        show_default=True,
        help=meaning,
    )


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """A real Slurm on one machine, without systemd and, but for namespaces, without root."""


@main.command(epilog=_EXIT_CODES)
@_dir_option
@_number("slices", "TPU slices.")
@_number("hosts_per_slice", "Nodes of each slice.")
@_number("cpu_nodes", "CPU nodes.")
@click.option(
    "--tpu-type",
    default=_DEFAULTS.tpu_type,
    show_default=True,
    help=f"Type of the fake tpu gres: {', '.join(TPU_TYPES)}.",
)
@_number("chips_per_host", "Its count on each TPU node.")
@_number("cred_expire_s", "Life of a job credential; a requeued task waits as long.")
@_number("grace_time_s", "GraceTime of the preemptable partition.")
@_number("kill_wait_s", "From SIGTERM to SIGKILL at a job's end.")
@_number("min_job_age_s", "For how long an ended job is remembered.")
@click.option(
    "--network",
    metavar="NETWORK",
    default=None,
    help="The nodes' 127.X.0.0/16; with --namespaces a private /24.  [default: one that is free]",
)
@click.option(
    "--root-switch",
    type=click.Choice(["on", "off"]),
    default="off",
    show_default=True,
    help="A switch above those of the slices, so that jobs can span slices.",
)
@click.option(
    "--namespaces",
    is_flag=True,
    help="Nodes are machines of their own, by namespaces, for the jobs of all users. Takes root.",
)
def up(directory: Path, root_switch: str, **fields: Any) -> None:
    """Bring a cluster up and wait until all its nodes are idle.

    Fine if it is up already. Partitions: cpu (the default), tpu, and tpu-low, whose jobs are
    requeued when tpu needs their nodes. Its nodes' slurmds listen on every address of this machine,
    as slurmd does; they answer only who has the cluster's key.

    With --namespaces each node has an address, a host name, processes and a /proc of its own and
    shares the file system; this machine has the network's first address.
    """
    options = Options(directory=directory, root_switch=root_switch == "on", **fields)
    started = time.monotonic()
    try:
        layout = lifecycle.up(options, click.echo)
    except OptionsError as error:
        _fail(EXIT_USAGE, *error.faults)
    except lifecycle.DifferentOptionsError as error:
        _fail(EXIT_USAGE, str(error))
    except lifecycle.ClusterError as error:
        _fail(EXIT_FAILED, str(error))
    _tell(layout, time.monotonic() - started)


def _tell(layout: Layout, seconds: float) -> None:
    options = layout.options
    version = ".".join(f"{number:02d}" for number in layout.version)
    directory = shlex.quote(str(layout.directory))
    click.echo(
        f"Slurm {version} is up ({seconds:.1f} s): {options.cpu_nodes} CPU node(s), "
        f"{options.slices} slice(s) of {options.hosts_per_slice} node(s) with "
        f"tpu:{options.tpu_type}:{options.chips_per_host} each, network {layout.network}"
    )
    click.echo(f"  to use it:  . {directory}/env.sh && sinfo -N")
    rest = " --namespaces" if options.namespaces else ""
    click.echo(
        f"  to end it:  {lifecycle.CHECKOUT}/slurm/devcluster/down.sh --dir {directory}{rest}"
    )


@main.command(epilog=_EXIT_CODES)
@_dir_option
@click.option("--keep-logs", is_flag=True, help="Leave the logs until the next up.")
@click.option("--namespaces", is_flag=True, help="It is root's, of an up with this option.")
def down(directory: Path, keep_logs: bool, namespaces: bool) -> None:
    """End a cluster: every daemon, every process of its jobs, its network, and its directory.

    Fine if there is none, or half of one.
    """
    if namespaces and os.getuid() != 0:
        _fail(EXIT_USAGE, "a cluster of --namespaces is root's; end it as root")
    try:
        found = lifecycle.down(directory, keep_logs=keep_logs)
    except OptionsError as error:
        _fail(EXIT_USAGE, *error.faults)
    except lifecycle.ClusterError as error:
        _fail(EXIT_FAILED, str(error))
    click.echo(
        f"nothing of the cluster in {directory} is left" if found else f"no cluster in {directory}"
    )


def _fail(code: int, *messages: str) -> NoReturn:
    for message in messages:
        click.echo(f"error: {message}", err=True)
    sys.exit(code)


def _interrupt(number: int, _frame: object) -> NoReturn:
    # Once more must not interrupt the clearing up.
    for other in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(other, signal.SIG_IGN)
    sys.exit(128 + number)


def run() -> None:
    """Runs the command line; a signal leaves nothing running that was not up before."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    main(prog_name="devcluster")
