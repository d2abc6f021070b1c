# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""``pathways-slurm run -- COMMAND``."""

import os
import sys
import time
from pathlib import Path

import click

from pathways_slurm.cli.common import EXIT_FAILED, SECONDS, fail, service_paths

EXIT_NOT_FOUND = 127
EXIT_NOT_EXECUTABLE = 126

_LOOK_AGAIN_S = 0.2
_SAY_AGAIN_S = 10.0
_HINT = (
    "'pathways-slurm status' shows it and 'pathways-slurm up' starts one; PATHWAYS_HOME and "
    "PATHWAYS_NAME must be the same there as here"
)


@click.command(
    name="run",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.option(
    "--timeout",
    type=SECONDS,
    help="Seconds to wait for the service.  [default: no limit]",
)
@click.option(
    "--cluster-env",
    type=click.Path(path_type=Path),
    envvar="PATHWAYS_CLUSTER_ENV",
    help="The discovery file.  [default: PATHWAYS_CLUSTER_ENV, else cluster.env of the service]",
)
@click.argument("argv", metavar="-- COMMAND [ARG]...", nargs=-1, type=click.UNPROCESSED)
def command(timeout: float | None, cluster_env: Path | None, argv: tuple[str, ...]) -> None:
    """Wait until the service can be used, then run COMMAND with its variables set.

    Signals are passed on to COMMAND. The exit code is COMMAND's own; 128+N if signal N ended it,
    127 if it was not found, 126 if it can't be executed, 1 if the service did not come.
    """
    if not argv:
        raise click.UsageError("no COMMAND. Try: pathways-slurm run -- python train.py")
    from pathways_slurm.foreground import run_in_foreground

    path = cluster_env or service_paths().cluster_env
    variables = _await(path, timeout)
    environ = {
        # JAX's client warns of insecure credentials and ends with a stack trace that is none. A
        # program that wants to see that sets the variable itself.
        "TF_CPP_MIN_LOG_LEVEL": "2",
        **os.environ,
        **variables,
        "PATHWAYS_CLUSTER_ENV": str(path.absolute()),
    }
    try:
        code = run_in_foreground(argv, environ)
    except FileNotFoundError:
        fail(f"{argv[0]}: command not found", EXIT_NOT_FOUND)
    except OSError as error:
        fail(f"{argv[0]}: {error.strerror}", EXIT_NOT_EXECUTABLE)
    sys.exit(code)


def _await(path: Path, timeout: float | None) -> dict[str, str]:
    """The variables of a cluster.env whose proxy answers; exits if that takes too long."""
    from pathways_slurm import cluster_env
    from pathways_slurm.probe import answering, parse_endpoint

    began = time.monotonic()
    said = began - _SAY_AGAIN_S
    while True:
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
                return found.variables()
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
