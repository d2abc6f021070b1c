# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""`pathways-emulator`, for someone who only wants the runtime. Loads neither JAX nor gRPC."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from pathways_emulator.instance import Instance


@click.group(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, or ended by order; 1 it could not be done, and standard error says "
    "why; 2 the command line is wrong.",
)
@click.version_option(package_name="pathways-slurm", prog_name="pathways-emulator")
def main() -> None:
    """An open CPU runtime with Pathways' command lines and JAX's IFRT proxy protocol.

    `serve` runs an instance. The other commands look at one that is running, or do to it what
    schedulers and failures do: they know it by the variables of its env file or cluster.env.

    \b
      pathways-emulator serve --slices 2 --slice-shape 2x4 --env-file emulator.env
      . emulator.env                    in another terminal
      pathways-emulator status
      pathways-emulator notice 1        slice 1 goes once its data is saved
      pathways-emulator revive 1        and is back
    """


# Options are plain texts here: what is wrong with them is told all at once, not one by one.
@main.command()
@click.option("--slices", metavar="N", help="Number of slices. Required.")
@click.option("--slice-shape", metavar="S", help="Of every slice, such as 2x2. Required.")
@click.option("--tpu-type", metavar="T", default="v6e", show_default=True, help="TPU generation.")
@click.option("--port", metavar="P", default="29000", show_default=True, help="The proxy's port.")
@click.option("--env-file", metavar="F", help="Written when ready, removed at the end.")
@click.option(
    "--network",
    metavar="127.N.0.0/16",
    default="127.0.0.0/16",
    show_default=True,
    help="Loopback addresses to use; choose another to run two services on one machine.",
)
@click.option(
    "--on-notice",
    metavar="suspend|forward",
    default="suspend",
    show_default=True,
    envvar="PATHWAYS_ON_NOTICE",
    show_envvar=True,
    help="When a slice is about to go: save what is on it and wait for its return, or leave that "
    "to the program.",
)
@click.option(
    "--notice-seconds",
    metavar="S",
    default="25",
    show_default=True,
    envvar="PATHWAYS_NOTICE_S",
    show_envvar=True,
    help="How long a slice that is about to go stays at most; 0 to go without notice.",
)
@click.option("-v", "--verbose", is_flag=True, help="Show what every process logs.")
def serve(verbose: bool, **texts: str | None) -> None:
    """Run resource manager, proxy and workers until Ctrl-C.

    When everything is ready the variables for a JAX program are printed as shell lines, and written
    to the file F if given.

    \b
    Example:
      pathways-emulator serve --slices 2 --slice-shape 2x2 --env-file emulator.env
    """
    from pathways_emulator import serve as service

    options = {name.replace("_", "-"): text for name, text in texts.items() if text is not None}
    sys.exit(service.main(options, verbose=verbose))


_slice = click.argument("slice_index", metavar="SLICE", type=click.IntRange(min=0))
_host = click.option(
    "--host", metavar="H", type=click.IntRange(min=0), help="Only this host's worker."
)
_env_file = click.option(
    "--env-file",
    metavar="F",
    type=click.Path(path_type=Path),
    help="Of the instance, or a service's cluster.env. By default the variables of the environment "
    "tell. It is read and not executed.",
)


@main.command()
@_env_file
def status(env_file: Path | None) -> None:
    """Show slices and hosts as the resource manager sees them.

    \b
    Example:
      pathways-emulator status --env-file ~/pathways/cluster.env
    """
    from pathways_emulator import commands

    _perform("status", env_file, commands.status)


@main.command(short_help="End the workers of a slice as kill -9 does.")
@_slice
@_host
@_env_file
def kill(slice_index: int, host: int | None, env_file: Path | None) -> None:
    """End the workers of a slice as kill -9 does: the slice is lost at once.

    Only workers on this machine can be reached; if one can't, none is signalled.

    \b
    Examples:
      pathways-emulator kill 1
      pathways-emulator kill 1 --host 0      which ends the slice just as well
    """
    from pathways_emulator import commands

    _perform("kill", env_file, lambda instance: commands.kill(instance, slice_index, host))


@main.command(short_help="Stop the workers of a slice with SIGSTOP.")
@_slice
@_host
@_env_file
def stop(slice_index: int, host: int | None, env_file: Path | None) -> None:
    """Stop the workers of a slice with SIGSTOP: they hang, and the slice is lost by silence.

    A worker that is woken later (kill -CONT PID) learns that it counts as lost, and ends. Only
    workers on this machine can be reached; if one can't, none is signalled.

    \b
    Example:
      pathways-emulator stop 1 --host 0
    """
    from pathways_emulator import commands

    _perform("stop", env_file, lambda instance: commands.stop(instance, slice_index, host))


@main.command(short_help="Announce that a slice goes, by SIGTERM.")
@_slice
@_env_file
def notice(slice_index: int, env_file: Path | None) -> None:
    """Announce that a slice goes: SIGTERM to one of its workers, as a scheduler sends it.

    Its workers end once what is on it is saved, or when the time of the notice has passed. Only
    workers on this machine can be reached.

    \b
    Example:
      pathways-emulator notice 1
    """
    from pathways_emulator import commands

    _perform("notice", env_file, lambda instance: commands.notice(instance, slice_index))


@main.command(short_help="Start the workers of a slice again.")
@_slice
@_env_file
def revive(slice_index: int, env_file: Path | None) -> None:
    """Start the workers of a slice again, as a new incarnation, and wait until it is alive.

    For instances that run under `pathways-emulator serve`; a scheduler revives slices by itself.
    Refused while all workers of the slice run; what is left of one that does not is killed.

    \b
    Example:
      pathways-emulator revive 1
    """
    from pathways_emulator import commands

    _perform("revive", env_file, lambda instance: commands.revive(instance, slice_index))


def _perform(name: str, env_file: Path | None, command: Callable[["Instance"], str]) -> None:
    """Runs a command on the instance, prints what it says, and ends the process."""
    from pathways_emulator import commands, instance

    try:
        print(command(instance.find(env_file, os.environ)))
    except (commands.CommandError, instance.InstanceError) as error:
        print(f"pathways-emulator {name}: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
