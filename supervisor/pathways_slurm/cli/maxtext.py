# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""``pathways-slurm maxtext``: what scripts/run_maxtext.sh calls."""

import os
import sys
import time
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pathways_slurm.cli import run
from pathways_slurm.cli.common import fail_usage, service_paths

if TYPE_CHECKING:
    from pathways_slurm.maxtext import Words

RESTARTS = 3
REQUEUES = 100


@click.command(name="maxtext", context_settings={"allow_interspersed_args": False})
@run.timeout_option
@run.cluster_env_option
@click.option(
    "--restarts",
    type=click.IntRange(min=0),
    default=RESTARTS,
    show_default=True,
    help="Start MaxText again when it fails, at most N times without a run of 2 hours in between.",
    metavar="N",
)
@click.option(
    "--requeues",
    type=click.IntRange(min=0),
    default=REQUEUES,
    show_default=True,
    help="When the Slurm job that this is in has to end, have it run again, at most N times.",
    metavar="N",
)
@click.argument("words", metavar="[CONFIG.yml] [KEY=VALUE]...", nargs=-1)
@click.pass_context
def command(
    context: click.Context,
    timeout: float | None,
    cluster_env: Path | None,
    restarts: int,
    requeues: int,
    words: tuple[str, ...],
) -> None:
    """Train with MaxText on the service's slices.

    Waits until the service can be used, and runs MaxText's pre-training with what follows from the
    service. A KEY=VALUE of yours is never changed; these are set if you leave them out:

    \b
      hardware=tpu enable_single_controller=true skip_jax_distributed_system=true
      elastic_enabled=true
      elastic_min_slice_count    MIN_SLICES of the service
      elastic_timeout_seconds    3600
      elastic_max_retries        100 for each of its MAX_SLICES
      run_name                   maxtext-JOBID, or maxtext-DATE-TIME outside of Slurm
      base_output_directory      PATHWAYS_HOME/maxtext

    MaxText resumes a run of the same run_name and base_output_directory from its last committed
    checkpoint: after a restart, after a requeue of the job, and when you start it again.

    Exit codes: MaxText's own, 128+N if signal N ended it; 1 if the service did not come; 2 if
    something is wrong and nothing was started.

    \b
    Example:
      pathways-slurm maxtext model_name=gpt3-52k dataset_type=synthetic steps=100
    """
    from pathways_slurm import maxtext
    from pathways_slurm.requeue import own_job

    if not words:
        click.echo(context.get_help(), err=True)
        fail_usage(["MaxText needs to know what to train: model_name=… dataset_type=… steps=…"])
    given, faults = maxtext.parse(words)
    job = own_job(os.environ)
    directory = service_paths().directory
    default = maxtext.place(job, directory, time.strftime("%Y%m%d-%H%M%S"))
    whole = given.with_defaults(_without_configs_own(default, given), os.environ)
    faults += _faults(whole, os.environ)
    if maxtext.RUN_NAME in whole.keys and maxtext.RUN_NAME not in given.keys:
        faults += _foreign(whole, os.environ)
    if faults:
        fail_usage(faults)
    for warning in maxtext.warnings(whole, os.environ):
        click.echo(f"pathways-slurm: warning: {warning}", err=True)
    context.invoke(
        run.command,
        timeout=timeout,
        cluster_env=cluster_env,
        restarts=restarts,
        requeues=requeues,
        check_jax=True,
        argv=(sys.executable, "-P", "-m", "pathways_slurm.maxtext_process", *whole.argv()),
    )


def _without_configs_own(default: dict[str, str], given: "Words") -> dict[str, str]:
    """A run's place that a configuration file names is the user's choice too."""
    from pathways_slurm import maxtext

    if given.config is None:
        return default
    try:
        own = maxtext.own_place(Path(given.config).read_text())
    except OSError:
        return default  # MaxText also looks among its own files
    return {key: value for key, value in default.items() if key not in own}


def _faults(words: "Words", environ: Mapping[str, str]) -> Iterator[str]:
    from pathways_slurm import maxtext

    if find_spec("maxtext") is None:
        yield f"{sys.prefix} has no MaxText; make one that has: scripts/setup_env.sh --maxtext"
    try:
        maxtext.autocheckpoint(environ)
    except ValueError as error:
        yield str(error)
    if maxtext.needs_cloud_storage(words, environ) and not _is_there("google.cloud.storage"):
        yield (
            f"{maxtext.OUTPUT}={words.value(maxtext.OUTPUT, environ)}: for a bucket MaxText needs "
            f"google-cloud-storage; add it: {sys.executable} -m pip install google-cloud-storage"
        )


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # a parent of it
        return False


def _foreign(words: "Words", environ: Mapping[str, str]) -> Iterator[str]:
    """A new job must not resume what one of the same number, of another Slurm, has left."""
    from pathways_slurm import maxtext

    directory = Path(words.keys.get(maxtext.OUTPUT, "")) / words.keys[maxtext.RUN_NAME]
    if directory.is_absolute() and directory.exists() and not environ.get("SLURM_RESTART_COUNT"):
        yield (
            f"{directory} is there already, and this job is new. To resume that run, say "
            f"{maxtext.RUN_NAME}={words.keys[maxtext.RUN_NAME]}; else choose another name"
        )
