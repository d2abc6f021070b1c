# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The command line. Each command is a module of its own, imported only when it is used."""

import importlib
import signal
from typing import Any

import click

from pathways_slurm import __version__

# Name, and the line that the list of commands shows: so that help needs no command's imports.
_COMMANDS = {
    "up": "Start the service and show what happens; Ctrl-C ends it.",
    "down": "End the service and wait until nothing of it is left.",
    "status": "Show the service and its slices; --watch goes on showing it.",
    "events": "Show what happened, with reasons; --follow goes on with what happens.",
    "logs": "Show what the service's processes have written.",
    "run": "Wait for the service, then run a command against it.",
    "maxtext": "Wait for the service, then train with MaxText on its slices.",
    "maintenance": "Have slices give their nodes back for a while, after notice.",
    "topology": "Show what a slice shape means: hosts, bounds, environment.",
    "supervise": "Run the supervisor in the foreground (what up and the job scripts call).",
}


class _LazyGroup(click.Group):
    def main(self, *args: Any, **kwargs: Any) -> Any:
        # Ctrl-C ends a command at once and visibly by that signal, which shells report as 130. The
        # commands that have something to end first install a handler of their own.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        return super().main(*args, **kwargs)

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(f"pathways_slurm.cli.{cmd_name}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in _COMMANDS and not args[0].startswith("-"):
            known = ", ".join(_COMMANDS)
            raise click.UsageError(f"No such command: {args[0]!r}. Commands: {known}.", ctx)
        return super().resolve_command(ctx, args)


@click.command(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Settings are environment variables (TPU_TYPE, SLICE_SHAPE, MIN_SLICES, MAX_SLICES, "
    "GCS_BUCKET, PATHWAYS_*); 'pathways-slurm up --help' lists them all.",
)
@click.version_option(__version__, prog_name="pathways-slurm")
def main(**_: Any) -> None:
    """Drive every TPU slice of a cluster from one JAX program, and keep it up."""
