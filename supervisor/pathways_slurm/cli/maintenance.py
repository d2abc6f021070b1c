# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""``pathways-slurm maintenance``."""

import os
import signal
import sys
import time
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn

import click

from pathways_slurm.cli.common import EXIT_FAILED, EXIT_OK, EXIT_USAGE, fail, service_paths
from pathways_slurm.cli.duration import DURATION, words
from pathways_slurm.paths import ServicePaths

if TYPE_CHECKING:
    from pathways_slurm.maintenance import Request

_LOOK_AGAIN_S = 0.5
_SAY_AGAIN_S = 10.0
# From the deadline until what hangs has been killed, and the scheduler says so.
_FORCE_S = 120.0


@click.command(name="maintenance")
@click.option("--all", "every", is_flag=True, help="Every slice of the service.")
@click.option(
    "--wait",
    "wait_s",
    type=DURATION,
    default="5m",
    show_default=True,
    help="How long the slice's processes may stay, such as 90s, 5m or 1h30m; then they are killed.",
)
@click.option("--reason", default="", metavar="TEXT", help="Why; shown with the slice.")
@click.option("--done", is_flag=True, help="Withdraw the requests: the slices come back.")
@click.argument("indices", metavar="[SLICE]...", nargs=-1, type=click.IntRange(min=0))
@click.pass_context
def command(
    ctx: click.Context,
    every: bool,
    wait_s: float,
    reason: str,
    done: bool,
    indices: tuple[int, ...],
) -> None:
    """Have slices give their nodes back, and keep them down until --done.

    Each SLICE (an index, as in 'pathways-slurm status') gets notice: its data is saved, or programs
    hear of it in time to leave it. This waits until the slice's processes have ended; those that
    have not when the time of --wait has passed are killed. The service and its other slices go on.

    The request outlives this command and the service. To interrupt the command changes nothing;
    the same command again goes on watching.

    \b
    Examples:
      pathways-slurm maintenance 1
      pathways-slurm maintenance 1 3 --wait 10m --reason "new kernel"
      pathways-slurm maintenance --all --wait 90s
      pathways-slurm maintenance --done 1
      pathways-slurm maintenance --done --all

    \b
    Exit codes:
      0  the slices are down and their nodes are free; with --done: the requests are withdrawn
      1  no service runs, or a slice did not end, or its request was withdrawn meanwhile
      2  wrong options, or no such slice; nothing was asked for
      130  interrupted (SIGINT); the requests stay
    """
    if bool(indices) == every:
        raise click.UsageError("name slices, such as 'pathways-slurm maintenance 1', or --all")
    if not reason.isprintable():
        raise click.UsageError(f"--reason {reason!r} must be one line of printable text")
    paths = service_paths()
    _check_owner(paths)
    try:
        if done:
            given = click.core.ParameterSource.COMMANDLINE
            if any(ctx.get_parameter_source(name) is given for name in ("wait_s", "reason")):
                raise click.UsageError("--done takes neither --wait nor --reason")
            _withdraw(paths, set(indices), every)
        else:
            _follow(paths, _ask(paths, set(indices), every, wait_s, reason))
    except OSError as error:
        fail(f"the requests can't be read or written: {error}")


def _check_owner(paths: ServicePaths) -> None:
    """Exits if the service is another user's: its supervisor could not read what we write."""
    import pwd

    try:
        owner = paths.state.stat().st_uid
    except FileNotFoundError:
        return
    except OSError as error:
        fail(f"{paths.state} can't be read: {error.strerror}")
    if owner != os.geteuid():
        try:
            name = pwd.getpwuid(owner).pw_name
        except KeyError:
            name = f"#{owner}"
        fail(
            f"the service in {paths.directory} is that of user {name}, who could not read a "
            f"request of yours; run this as {name}, with PATHWAYS_HOME and PATHWAYS_NAME as here"
        )


def _ask(
    paths: ServicePaths, wanted: set[int], every: bool, wait_s: float, reason: str
) -> dict[int, "Request"]:
    """Makes the requests that are not there yet, and returns all that were asked for."""
    from pathways_slurm import maintenance

    status = _status(paths)
    if status["supervisor_pid"] is None:
        fail(
            f"no service runs in {paths.directory}, so no slice has nodes to give back; nothing "
            f"was asked for. It is {status['service']}: {status['reason']}"
        )
    valid = {item["index"] for item in status["slices"]}
    if not valid:
        fail(f"the service has no slices yet; try again in a moment. {status['reason']}")
    _check_known(wanted, valid)
    known = maintenance.requests(paths.maintenance, _warn)
    asked = {}
    for index in sorted(valid if every else wanted):
        if (request := known.get(index)) is not None:
            click.echo(
                f"slice {index} is under maintenance already, {_until(request)}; to change that, "
                f"withdraw it first: pathways-slurm maintenance --done {index}"
            )
        else:
            now = time.time()
            request = maintenance.Request(now + wait_s, reason, now)
            maintenance.make(paths.maintenance, index, request)
            click.echo(f"slice {index} is asked for its nodes, {_until(request)}")
        asked[index] = request
    return asked


def _withdraw(paths: ServicePaths, wanted: set[int], every: bool) -> NoReturn:
    from pathways_slurm import maintenance

    status = _status(paths)
    known = maintenance.requested(paths.maintenance)
    _check_known(wanted, known | {item["index"] for item in status["slices"]})
    if every and not known:
        click.echo("no slice is under maintenance")
    running = status["supervisor_pid"] is not None
    after = "it comes back" if running else "the next service starts it"
    for index in sorted(known if every else wanted):
        withdrawn = maintenance.withdraw(paths.maintenance, index)
        what = f"maintenance is over; {after}" if withdrawn else "it is not under maintenance"
        click.echo(f"slice {index}: {what}")
    sys.exit(EXIT_OK)


def _follow(paths: ServicePaths, asked: Mapping[int, "Request"]) -> NoReturn:
    """Shows how the slices end, until all have. Never returns."""
    from pathways_slurm import maintenance
    from pathways_slurm.cli.maintenance_watch import Watch
    from pathways_slurm.cli.timeline import Timeline

    signal.signal(signal.SIGINT, signal.default_int_handler)
    timeline = Timeline(paths.events)
    deadlines = {index: request.deadline for index, request in asked.items()}
    watch = Watch(deadlines)
    try:
        with _Progress() as progress:
            while True:
                watch.take(_status(paths), now := time.time())
                timeline.show_new()
                if not watch.left:
                    break
                gone = asked.keys() - maintenance.requests(paths.maintenance, _ignore).keys()
                if gone:
                    fail(f"the request for {_named(gone)} was withdrawn meanwhile")
                progress.show(watch.progress(now))
                if now > max(deadlines.values()) + _FORCE_S:
                    fail("\n  ".join(["not ended, for all the force:", *watch.progress(now)]))
                time.sleep(_LOOK_AGAIN_S)
    except KeyboardInterrupt:
        _interrupted(asked)
    for line in watch.summary():
        click.echo(line)
    click.echo(f"to bring back what is down: {_done(asked)}")
    sys.exit(EXIT_OK)


def _interrupted(asked: Mapping[int, "Request"]) -> NoReturn:
    click.echo(
        f"\nthis command has ended, the maintenance has not: {_named(asked)} will go down and stay "
        f"down. To withdraw the request: {_done(asked)}",
        err=True,
    )
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)
    sys.exit(EXIT_FAILED)  # not reached


class _Progress:
    """Lines in place on a terminal; else each new situation, and again from time to time."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._live: Any = None
        self._said: list[str] = []
        self._said_at = 0.0

    def __enter__(self) -> "_Progress":
        if sys.stdout.isatty():
            from rich.live import Live

            self._live = self._stack.enter_context(Live(auto_refresh=False, transient=True))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def show(self, lines: list[str]) -> None:
        """Replaces what is shown."""
        if self._live is not None:
            from rich.text import Text

            self._live.update(Text("\n".join(lines)), refresh=True)
            return
        # Without the seconds, which are new each time.
        situation = [line.partition(",")[0] for line in lines]
        now = time.monotonic()
        if situation != self._said or now - self._said_at >= _SAY_AGAIN_S:
            self._said, self._said_at = situation, now
            for line in lines:
                click.echo(line)


def _check_known(wanted: Collection[int], valid: Collection[int]) -> None:
    """Exits if a slice does not exist."""
    if unknown := sorted(set(wanted) - set(valid)):
        listed = ", ".join(map(str, sorted(valid))) or "none"
        fail(f"no {_named(unknown)} in this service; valid: {listed}", EXIT_USAGE)


def _status(paths: ServicePaths) -> dict[str, Any]:
    from pathways_slurm.status import read_status

    try:
        return read_status(paths)
    except (OSError, ValueError) as error:
        fail(f"{paths.status} can't be read: {error}")


def _until(request: "Request") -> str:
    at = datetime.fromtimestamp(request.deadline).astimezone()
    why = f" ({request.reason})" if request.reason else ""
    left = words(request.deadline - time.time())
    return f"until {at:%Y-%m-%d %H:%M:%S}, {left} from now{why}"


def _named(indices: Collection[int]) -> str:
    listed = ", ".join(map(str, sorted(indices)))
    return f"slice{'s' if len(indices) > 1 else ''} {listed}"


def _done(indices: Collection[int]) -> str:
    return f"pathways-slurm maintenance --done {' '.join(map(str, sorted(indices)))}"


def _warn(message: str) -> None:
    click.echo(f"pathways-slurm: warning: {message}", err=True)


def _ignore(_message: str) -> None:
    """Was said at the start."""
