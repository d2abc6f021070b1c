# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Command line and environment of resource manager, IFRT proxy and workers.

Flags and their order are those of Pathways' documentation; extra flags of the settings replace a
flag of the same name and otherwise follow. What the emulator needs beyond flags is in the
environment, where Pathways' own images ignore it. In containers it is the same: what comes before
the program and its flags is the layer's, and the program sees none of the variables of the layer.
"""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pathways_slurm import containers
from pathways_slurm.runtime_files import ORDERS_VARIABLE, REPORT_VARIABLE
from pathways_slurm.scheduler.base import ArraySpec
from pathways_slurm.topology import slice_environment

if TYPE_CHECKING:
    from pathways_slurm.config import Settings

BASH = Path("/bin/bash")

# The repository's folder; the package is installed from there in editable mode.
_SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"

WORKER_HOST_SCRIPT = _SCRIPTS / "lib" / "worker_host.sh"

# What a component inherits. Anything else could change what it does: stale MEGASCALE_* make
# workers hang without a word, and JAX_PLATFORMS=proxy would make the emulator its own client.
_INHERITED = ("HOME", "LANG", "PATH", "TMPDIR", "TZ", "USER")


def rm_argv(settings: "Settings") -> tuple[str, ...]:
    """Of the resource manager."""
    return (
        *_server(settings, "rm"),
        *_with_extra(
            [
                f"--server_port={settings.rm_port}",
                "--node_type=resource_manager",
                f"--instance_type={settings.topology.instance_type}",
                f"--instance_count={settings.max_slices}",
                f"--gcs_scratch_location={settings.scratch_location}",
                "--enable_gcs_olm=false",
            ],
            settings.rm_extra_args,
        ),
    )


def proxy_argv(settings: "Settings", service_address: str) -> tuple[str, ...]:
    """Of the IFRT proxy. ``service_address`` is that of the resource manager, without a port."""
    return (
        *_proxy(settings),
        *_with_extra(
            [
                f"--server_port={settings.proxy_port}",
                f"--resource_manager_address={service_address}:{settings.rm_port}",
                f"--gcs_scratch_location={settings.scratch_location}",
                f"--num_elastic_instances={settings.max_slices}",
            ],
            settings.proxy_extra_args,
        ),
    )


def worker_argv(settings: "Settings", service_address: str) -> tuple[str, ...]:
    """Of each host's worker; in its environment, the place of the host in its slice is set."""
    return (
        *_server(settings, None),
        *_with_extra(
            [
                f"--server_port={settings.worker_port}",
                f"--resource_manager_address={service_address}:{settings.rm_port}",
                f"--gcs_scratch_location={settings.scratch_location}",
                "--enable_gcs_olm=false",
            ],
            settings.worker_extra_args,
        ),
    )


def rm_env(
    settings: "Settings", service_address: str, environ: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Whole environment of the resource manager, which binds ``service_address``.

    ``environ`` is what it inherits a little from: by default this process's own.
    """
    return _inherited(settings, environ) | {
        "PATHWAYS_BIND_ADDRESS": service_address,
        "PATHWAYS_HEARTBEAT_TIMEOUT_S": f"{settings.heartbeat_timeout_s:g}",
        REPORT_VARIABLE: str(settings.paths.report),
        ORDERS_VARIABLE: str(settings.paths.orders),
        # There is no metadata server to ask for TPUs on a CPU node.
        "TPU_SKIP_MDS_QUERY": "true",
    }


def proxy_env(
    settings: "Settings", service_address: str, environ: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Whole environment of the IFRT proxy, which binds ``service_address``."""
    return _inherited(settings, environ) | {
        "IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS": "true",
        "PATHWAYS_BIND_ADDRESS": service_address,
        "PATHWAYS_ON_NOTICE": settings.on_notice,
    }


def worker_env(
    settings: "Settings", service_address: str, environ: Mapping[str, str] | None = None
) -> dict[str, str]:
    """What is the same for the workers of all hosts.

    The scheduler adds what it passes on and each host's place in its slice, and
    ``scripts/lib/worker_host.sh`` what follows from that. ``environ`` is this process's own by
    default.
    """
    return (
        _layer_environment(settings, environ, epilog=True)
        | slice_environment(
            settings.topology, num_slices=settings.max_slices, coordinator=service_address
        )
        | {
            "PATHWAYS_LEASE_S": f"{settings.lease_s:g}",
            "PATHWAYS_NOTICE_S": f"{settings.notice_s:g}",
        }
    )


def array_spec(
    settings: "Settings",
    tag: str,
    service_address: str,
    indices: Iterable[int],
    first_incarnation: int,
) -> ArraySpec:
    """The array to submit for these slices.

    Args:
        settings: Of the service.
        tag: Unique to this submission.
        service_address: Of the resource manager, as the slices' nodes reach it.
        indices: Of the slices.
        first_incarnation: Of each of them.
    """
    return ArraySpec(
        tag=tag,
        indices=tuple(indices),
        hosts_per_task=settings.topology.hosts,
        argv=(str(BASH), str(WORKER_HOST_SCRIPT), *worker_argv(settings, service_address)),
        env=worker_env(settings, service_address),
        first_incarnation=first_incarnation,
        log_dir=settings.paths.logs,
    )


def base_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables of ``environ``, by default this process's own, that a component inherits."""
    source = os.environ if environ is None else environ
    return {
        name: value
        for name, value in source.items()
        if name in _INHERITED or name.startswith("LC_")
    }


def emulator_programs() -> tuple[Path, Path]:
    """The emulator's server and proxy, outside of containers."""
    # Beside this interpreter, and not from PATH: it must be the same installation.
    folder = Path(sys.executable).parent
    return folder / "pathways-emulator-server", folder / "pathways-emulator-proxy-server"


def jax_version(settings: "Settings") -> str | None:
    """Version of JAX that the runtime speaks, or None where it is not known.

    A client of another version may fail in ways that do not say so.
    """
    if settings.container == "enroot" and settings.proxy_image:
        return containers.stated_jax(settings.proxy_image)
    return containers.installed_jax()


def _server(settings: "Settings", name: str | None) -> tuple[str, ...]:
    """What becomes resource manager or worker, by the flags that follow. ``name``: of a component
    of the service itself."""
    if settings.container == "none":
        return (str(emulator_programs()[0]),)
    image = containers.images_of(settings).server
    return containers.start_command(settings, image, name, ["/pathways/server"])


def _proxy(settings: "Settings") -> tuple[str, ...]:
    if settings.container == "none":
        return (str(emulator_programs()[1]),)
    image = containers.images_of(settings).proxy_server
    return containers.start_command(settings, image, "proxy", ["/pathways/proxy_server"])


def _inherited(settings: "Settings", environ: Mapping[str, str] | None) -> dict[str, str]:
    return base_environment(environ) | _layer_environment(settings, environ)


def _layer_environment(
    settings: "Settings", environ: Mapping[str, str] | None, *, epilog: bool = False
) -> dict[str, str]:
    if settings.container == "none":
        return {}
    own = containers.layer_environment(settings, os.environ if environ is None else environ)
    return own | {"PATHWAYS_CONTAINER_EPILOG": str(containers.REMOVE_STALE)} if epilog else own


def _with_extra(flags: Sequence[str], extra: Sequence[str]) -> list[str]:
    result = list(flags)
    for word in extra:
        name = _flag_name(word)
        places = [place for place, flag in enumerate(result) if _flag_name(flag) == name]
        if places:
            result[places[0]] = word
        else:
            result.append(word)
    return result


def _flag_name(word: str) -> str:
    return word.partition("=")[0]
