# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""``pathways-slurm run -- COMMAND``."""

import os
import signal
import sys
import time
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pathways_slurm.cli.common import EXIT_FAILED, EXIT_USAGE, SECONDS, fail, service_paths

if TYPE_CHECKING:
    from pathways_slurm.cluster_env import ClusterEnv
    from pathways_slurm.foreground import Ended

EXIT_NOT_FOUND = 127
EXIT_NOT_EXECUTABLE = 126

_RESTART_COUNT = "PATHWAYS_RESTART_COUNT"

_LOOK_AGAIN_S = 0.2
_SAY_AGAIN_S = 10.0
_NOTICE_SIGNALS = (
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGCONT,
    signal.SIGWINCH,
    signal.SIGURG,
)
_HINT = (
    "'pathways-slurm status' shows it and 'pathways-slurm up' starts one; PATHWAYS_HOME and "
    "PATHWAYS_NAME must be the same there as here"
)


class _Signal(click.ParamType[signal.Signals]):
    name = "NAME"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> signal.Signals:
        name = str(value).upper().removeprefix("SIG")
        valid = [number for number in _NOTICE_SIGNALS if number.name == f"SIG{name}"]
        if not valid:
            names = ", ".join(number.name.removeprefix("SIG") for number in _NOTICE_SIGNALS)
            self.fail(f"{value!r} is not a signal for a notice; valid: {names}", param, ctx)
        return valid[0]


_SIGNAL = _Signal()

timeout_option = click.option(
    "--timeout",
    type=SECONDS,
    help="Seconds to wait for the service, each time.  [default: no limit]",
)
cluster_env_option = click.option(
    "--cluster-env",
    type=click.Path(path_type=Path),
    envvar="PATHWAYS_CLUSTER_ENV",
    help="The discovery file.  [default: PATHWAYS_CLUSTER_ENV, else cluster.env of the service]",
)


@click.command(
    name="run",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@timeout_option
@cluster_env_option
@click.option(
    "--restarts",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Start COMMAND again when it fails, at most N times; each time, wait for the service.",
    metavar="N",
)
@click.option(
    "--notice-signal",
    type=_SIGNAL,
    help="Send COMMAND this signal when a slice is about to go, and when the service ends.",
)
@click.option(
    "--requeues",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="When the Slurm job that this is in has to end, have it run again, at most N times.",
    metavar="N",
)
@click.option(
    "--check-jax",
    is_flag=True,
    help="Do not start COMMAND unless the JAX that is installed here is the service's version.",
)
@click.argument("argv", metavar="-- COMMAND [ARG]...", nargs=-1, type=click.UNPROCESSED)
def command(
    timeout: float | None,
    cluster_env: Path | None,
    restarts: int,
    notice_signal: signal.Signals | None,
    requeues: int,
    check_jax: bool,
    argv: tuple[str, ...],
) -> None:
    """Wait until the service can be used, then run COMMAND with its variables set.

    Signals are passed on to COMMAND. The exit code is COMMAND's own; 128+N if signal N ended it,
    127 if it was not found, 126 if it can't be executed, 1 if the service did not come.

    With --restarts, COMMAND is started again after an exit code other than 0, 126 and 127, and
    after a signal that ended it; not after SIGTERM, SIGINT, SIGHUP or SIGQUIT to this command,
    whatever COMMAND makes of it. N counts failures: not an exit code of 75, by which COMMAND asks
    for another run, unless it does so within 10 s. After a run of 2 hours it counts anew.
    PATHWAYS_RESTART_COUNT tells COMMAND how often it was started again, whatever for; it is not set
    in the first run.

    With --notice-signal, COMMAND gets the signal once for each slice that is about to go while
    COMMAND runs (several at once may be one signal), and once when the service ends; what is going
    stands in notices.json beside cluster.env. COMMAND should handle the signal from its start on:
    most signals end a program that does not.

    With --requeues, a job that is preempted, or that gets SIGUSR1 or SIGTERM while Slurm would have
    it run on (sbatch --signal=B:USR1@120), is requeued when COMMAND has ended, unless Slurm has
    done so; a cancelled job is not. N counts all requeues of the job.

    \b
    Examples:
      pathways-slurm run -- python train.py
      pathways-slurm run --restarts 3 --notice-signal USR1 -- python train.py
    """
    if not argv:
        raise click.UsageError("no COMMAND. Try: pathways-slurm run -- python train.py")
    from pathways_slurm.restarts import Failures, describe, failed, pause_s, worth_restarting

    path = (cluster_env or service_paths().cluster_env).absolute()
    came = _warnings() if requeues else set()
    failures = Failures()
    for restart in count():
        if (found := _await(path, timeout, came)) is None:
            ended, ran_s = _ended_by(came), 0.0
        else:
            if check_jax:
                _check_jax(found)
            environ = _environ(path, found.variables(), restart)
            began = time.monotonic()
            ended = _run(argv, environ, path, notice_signal)
            ran_s = time.monotonic() - began
        # First: the end of a job that is preempted looks like a failure, and is none.
        if requeues and _requeued(ended, came, requeues):
            break
        if came or not restarts or not worth_restarting(ended):
            break
        failures = failures.after(ended, ran_s)
        if failures.counted > restarts:
            _say(f"{describe(ended)}; it was restarted {restarts} times, which is the limit")
            break
        pause = pause_s(failures.at_once)
        soon = f"; it failed at once, so this waits for {pause:g} s" if pause else ""
        budget = f"{failures.counted} of {restarts}" if failed(ended, ran_s) else "(not counted)"
        _say(f"restart {budget}: {describe(ended)}{soon}")
        time.sleep(pause)
    sys.exit(ended.code)


def _warnings() -> set[int]:
    """Will hold what comes while no command runs: it ends the wait, and not this process."""
    from pathways_slurm.requeue import WARNINGS

    came: set[int] = set()
    for number in WARNINGS:
        signal.signal(number, lambda number, _: came.add(number))
    return came


def _requeued(ended: "Ended", came: set[int], budget: int) -> bool:
    from pathways_slurm.requeue import requeue_if_due

    received = ended.received | came
    return requeue_if_due(os.environ, code=ended.code, received=received, budget=budget, say=_say)


def _ended_by(came: set[int]) -> "Ended":
    from pathways_slurm.foreground import Ended

    number = min(came)
    return Ended(128 + number, number, asked=True, received=frozenset(came))


def _check_jax(found: "ClusterEnv") -> None:
    from importlib.metadata import PackageNotFoundError, version

    if (wanted := found.jax_version) is None:
        return
    try:
        here = version("jaxlib")
    except PackageNotFoundError:
        here = None
    if here is not None and found.fits(here):
        return
    has = "no JAX" if here is None else f"JAX {here}"
    fail(
        f"the service speaks JAX {wanted}, and {sys.prefix} has {has}; a client of another version "
        f"fails in ways that do not say so. scripts/setup_env.sh --jax {wanted} makes an "
        "environment that fits, with --maxtext for MaxText and with --emulator for the emulator",
        EXIT_USAGE,
    )


def _say(words: str) -> None:
    click.echo(f"pathways-slurm: {words}", err=True)


def _environ(path: Path, variables: dict[str, str], restart: int) -> dict[str, str]:
    environ = {
        # JAX's client warns of insecure credentials and ends with a stack trace that is none. A
        # program that wants to see that sets the variable itself.
        "TF_CPP_MIN_LOG_LEVEL": "2",
        **os.environ,
        **variables,
        "PATHWAYS_CLUSTER_ENV": str(path),
    }
    # An outer run's is about another command.
    environ.pop(_RESTART_COUNT, None)
    return environ | ({_RESTART_COUNT: str(restart)} if restart else {})


def _run(
    argv: tuple[str, ...], environ: dict[str, str], path: Path, number: signal.Signals | None
) -> "Ended":
    from pathways_slurm.foreground import run_in_foreground

    prompts = None
    if number is not None:
        from pathways_slurm import notices
        from pathways_slurm.notice_watch import NoticeWatch

        prompts = NoticeWatch(path.with_name(notices.FILE), number, _say).prompts
    try:
        return run_in_foreground(argv, environ, prompts)
    except FileNotFoundError:
        fail(f"{argv[0]}: command not found", EXIT_NOT_FOUND)
    except OSError as error:
        fail(f"{argv[0]}: {error.strerror}", EXIT_NOT_EXECUTABLE)


def _await(path: Path, timeout: float | None, came: set[int]) -> "ClusterEnv | None":
    """A cluster.env whose proxy answers; exits if that takes too long.

    None as soon as a signal has come.
    """
    from pathways_slurm import cluster_env
    from pathways_slurm.probe import answering, parse_endpoint

    began = time.monotonic()
    said = began - _SAY_AGAIN_S
    while not came:
        try:
            found = cluster_env.read(path)
        except FileNotFoundError:
            why = f"{path} is not there yet"
        except cluster_env.ClusterEnvError as error:
            fail(str(error), EXIT_FAILED)
        except OSError as error:
            fail(f"{path} can't be read: {error.strerror}", EXIT_FAILED)
        else:
            if answering([parse_endpoint(found.proxy_address)]):
                return found
            why = f"{path} is there, but its IFRT proxy {found.proxy_address} does not answer"
        now = time.monotonic()
        if timeout is not None and now - began >= timeout:
            fail(f"no service after {timeout:g} s: {why}. {_HINT}", EXIT_FAILED)
        if now - said >= _SAY_AGAIN_S:
            first = said < began
            said = now
            more = f". {_HINT}" if first else f" ({now - began:.0f} s)"
            click.echo(f"waiting for the service: {why}{more}", err=True)
        time.sleep(_LOOK_AGAIN_S)
    return None
