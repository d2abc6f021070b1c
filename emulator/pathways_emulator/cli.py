# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""`pathways-emulator`, for someone who only wants the runtime. Loads neither JAX nor gRPC."""

import sys

import click


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="pathways-slurm", prog_name="pathways-emulator")
def main() -> None:
    """An open CPU runtime with Pathways' command lines and JAX's IFRT proxy protocol."""


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
@click.option("-v", "--verbose", is_flag=True, help="Show what every process logs.")
def serve(
    slices: str | None,
    slice_shape: str | None,
    tpu_type: str,
    port: str,
    env_file: str | None,
    network: str,
    verbose: bool,
) -> None:
    """Run resource manager, proxy and workers until Ctrl-C.

    When everything is ready the variables for a JAX program are printed as shell lines, and written
    to the file F if given.
    """
    from pathways_emulator import serve as service

    texts = {
        "slices": slices,
        "slice-shape": slice_shape,
        "tpu-type": tpu_type,
        "port": port,
        "env-file": env_file,
        "network": network,
    }
    options = {name: text for name, text in texts.items() if text is not None}
    sys.exit(service.main(options, verbose=verbose))


if __name__ == "__main__":
    main()
