# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""One line that makes JAX a client of a Pathways service: ``pathways_elastic.connect()``."""

import logging
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pathways_elastic.errors import ElasticError, SliceShortageError

if TYPE_CHECKING:
    import jax

    from pathways_slurm.cluster_env import ClusterEnv

_log = logging.getLogger("pathways_elastic")

CLUSTER_ENV_VARIABLE = "PATHWAYS_CLUSTER_ENV"
"""Names the discovery file; ``pathways-slurm run`` sets it."""

_LOOK_EVERY_S = 0.2
_SAY_EVERY_S = 10.0
_PROBE_S = 10.0

_START_IT = (
    "'pathways-slurm status' shows the service and 'pathways-slurm up' (on Slurm: sbatch "
    "scripts/start_pathways.sh) starts one. A service with another home or on another file system "
    f"needs its cluster.env named: connect(PATH) or {CLUSTER_ENV_VARIABLE}"
)


class ConnectError(ElasticError):
    """There is no connection to the service; the message says why, and what to do."""


class NoServiceError(ConnectError):
    """No service could be used in time."""


class OtherBackendError(ConnectError):
    """JAX computes elsewhere in this process already."""


class VersionMismatchError(ConnectError):
    """JAX is of another version here than in the service."""


def connect(
    cluster_env: str | os.PathLike[str] | None = None,
    *,
    timeout_s: float = 1800.0,
    min_slices: int | None = None,
    autocheckpoint: bool | None = None,
    exit_after_autocheckpoint: bool | None = None,
    autocheckpoint_timeout_s: float | None = None,
) -> list["jax.Device"]:
    """Makes JAX, in this process, a client of the service; returns all devices of the service.

    Waits for the service and for enough slices, and says so every 10 s as a warning of the logger
    ``pathways_elastic``. Sets what cluster.env has in this process's environment. Calling it again
    returns the devices again. JAX may have been imported before, but not have computed anything.

    Args:
        cluster_env: The discovery file; if None, what ``PATHWAYS_CLUSTER_ENV`` names, and else
            cluster.env of the service that ``PATHWAYS_HOME`` and ``PATHWAYS_NAME`` say, which is
            ``~/pathways/cluster.env`` by default.
        timeout_s: How long to wait for everything together.
        min_slices: How many slices must answer; what cluster.env says if None.
        autocheckpoint: Whether Orbax saves the next step after SIGTERM or a notice, see
            docs/autocheckpoint.md; what ``ENABLE_AUTOCHECKPOINT`` says if None, else not.
        exit_after_autocheckpoint: Whether the program ends then; ``EXIT_AFTER_AUTOCHECKPOINT``.
        autocheckpoint_timeout_s: What that may take; ``AUTOCHECKPOINT_TIMEOUT_S``, else 300.

    Raises:
        NoServiceError: There was no cluster.env, or no proxy that answers, in time.
        SliceShortageError: There were too few slices in time.
        OtherBackendError: JAX was initialized on another backend, or with another service.
        VersionMismatchError: JAX is of another version here than in the service.
        ConnectError: cluster.env is broken, or the proxy refuses the connection.
        ValueError: An argument, or a variable, is out of its range; the message has all that are.
    """
    from pathways_elastic import autocheckpoint as saving

    faults = []
    if not 0 < timeout_s < math.inf:
        faults.append(f"timeout_s must be > 0 and finite, got {timeout_s!r}")
    if min_slices is not None and min_slices < 1:
        faults.append(f"min_slices must be >= 1, got {min_slices!r}")
    try:
        options = saving.Options.of(
            os.environ, autocheckpoint, exit_after_autocheckpoint, autocheckpoint_timeout_s
        )
    except ValueError as error:
        faults.append(str(error))
    if faults:
        raise ValueError("; ".join(faults))
    waiting = _Waiting(timeout_s)
    path = cluster_env_path(cluster_env, os.environ)
    found = waiting.until(lambda: _service(path))
    _check_version(found)
    _initialize_jax(found)
    os.environ.update(found.variables())
    os.environ[CLUSTER_ENV_VARIABLE] = str(path)
    devices = devices_of(found)
    wanted = found.min_slices if min_slices is None else min_slices
    _await_slices(devices, wanted, waiting)
    _log.info("connected to service %s at %s", found.name, found.proxy_address)
    if options.enabled:
        saving.enable(options)
    elif autocheckpoint is False:
        saving.disable()
    return devices


def cluster_env_path(given: str | os.PathLike[str] | None, environ: Mapping[str, str]) -> Path:
    """Where the discovery file is, or will be; absolute.

    Raises:
        ConnectError: The environment names no place.
    """
    named = given or environ.get(CLUSTER_ENV_VARIABLE)
    if named:
        return Path(named).expanduser().absolute()
    from pathways_slurm.paths import ServicePaths

    try:
        return ServicePaths.from_environ(environ).cluster_env
    except ValueError as error:
        raise ConnectError(f"where cluster.env is can't be told: {error}") from None


class _Waiting:
    """A deadline for all that is waited for, and a word about it now and then."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._began = time.monotonic()
        self._said = self._began - _SAY_EVERY_S

    @property
    def left_s(self) -> float:
        """Seconds; never negative."""
        return max(0.0, self._began + self._timeout_s - time.monotonic())

    def until[T](self, look: Callable[[], T | str]) -> T:
        """Looks until there is something else than the reason why it is not there.

        Raises:
            NoServiceError: It took too long; with the last reason.
        """
        while isinstance(answer := look(), str):
            if not self.left_s:
                raise NoServiceError(f"no service after {self._timeout_s:g} s: {answer}")
            self.say(f"waiting for the service: {answer}")
            time.sleep(min(_LOOK_EVERY_S, self.left_s))
        return answer

    def say(self, words: str) -> None:
        """Tells what is being waited for, unless that was told a moment ago."""
        now = time.monotonic()
        if now - self._said >= _SAY_EVERY_S:
            self._said = now
            _log.warning("%s (%.0f s of at most %g s)", words, now - self._began, self._timeout_s)


def _service(path: Path) -> "ClusterEnv | str":
    """The service whose proxy answers, or why there is none."""
    from pathways_slurm import cluster_env
    from pathways_slurm.probe import answering, parse_endpoint

    try:
        found = cluster_env.read(path)
    except FileNotFoundError:
        return f"{path} is not there. {_START_IT}"
    except cluster_env.ClusterEnvError as error:
        raise ConnectError(
            f"{error}. The service writes the file anew when it is started again "
            "('pathways-slurm down', then 'up')"
        ) from None
    except OSError as error:
        raise ConnectError(f"{path} can't be read: {error.strerror}") from None
    if answering([parse_endpoint(found.proxy_address)]):
        return found
    return (
        f"{path} is there, but its IFRT proxy {found.proxy_address} does not answer. "
        f"The service may be starting again, or be out of reach from this machine. {_START_IT}"
    )


def _check_version(found: "ClusterEnv") -> None:
    from importlib.metadata import version

    client, service = version("jaxlib"), found.jax_version  # the protocol is jaxlib's
    if not found.fits(client):
        raise VersionMismatchError(
            f"JAX is {client} here and {service} in the service (PATHWAYS_JAX_VERSION in "
            f"cluster.env), which must be the same: install that one here (pip install "
            f"jax=={service} jaxlib=={service}), or start a service of JAX {client}"
        )


def _initialize_jax(found: "ClusterEnv") -> None:
    """Has JAX use the service, or checks that it does already."""
    target = found.variables()["JAX_BACKEND_TARGET"]
    # Both are read but once: by XLA's client when it is loaded, which otherwise warns of each array
    # of a lost slice, and by the client when it connects.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.update(
        {name: value for name, value in found.variables().items() if name.startswith("IFRT_")}
    )
    import jax
    import pathwaysutils
    from jax._src import xla_bridge  # JAX tells nowhere else without initializing a backend

    if xla_bridge.backends_are_initialized():
        _check_connected(target, found)
    else:
        # JAX has read JAX_PLATFORMS when it was imported. "proxy,cpu" is a program's own choice.
        if "proxy" not in (jax.config.jax_platforms or "").split(","):
            jax.config.update("jax_platforms", "proxy")
        jax.config.update("jax_backend_target", target)
    pathwaysutils.initialize()


def _check_connected(target: str, found: "ClusterEnv") -> None:
    import jax
    from jax.extend import backend

    if "proxy" not in (known := backend.backends()):
        raise OtherBackendError(
            f"JAX was initialized on {', '.join(sorted(known))} before connect() was called: call "
            "connect() before anything that computes or asks for devices; in a notebook, restart "
            "the kernel and call it in the first cell"
        )
    used = jax.config.read("jax_backend_target")
    before = os.environ.get("PATHWAYS_RUN_ID", found.run_id)
    if used != target or before != found.run_id:
        raise OtherBackendError(
            f"this process is connected to {used} (run {before}), and cluster.env now names "
            f"{target} (run {found.run_id}): a process keeps its first service, so start it again; "
            "in a notebook, restart the kernel"
        )


def devices_of(found: "ClusterEnv") -> list["jax.Device"]:
    """What JAX, which is set to use the service, finds there.

    Raises:
        ConnectError: It finds nothing.
    """
    import jax

    try:
        return jax.devices()
    except RuntimeError as error:
        if "known backends" in str(error):
            # JAX before 0.12 knows of proxies by pathwaysutils only, which looks once whether it is
            # to use one.
            raise ConnectError(
                "pathwaysutils.initialize() was called before JAX was to use the service, and so "
                "did nothing: leave that call out, connect() makes it"
            ) from error
        raise ConnectError(
            f"JAX can't use the IFRT proxy at {found.proxy_address}: {error}. The service's own "
            "view is in logs/proxy.log below its home, and in 'pathways-slurm status'"
        ) from error


def _await_slices(devices: Sequence["jax.Device"], wanted: int, waiting: _Waiting) -> None:
    from pathways_elastic import detection

    try:
        slices = detection.slices_of(devices)
    except ValueError as error:
        raise ConnectError(str(error)) from None
    if wanted > len(slices):
        raise SliceShortageError(
            f"{wanted} slices are wanted, and the service has {len(slices)} at most: give a "
            "smaller min_slices, or start a service with more (MAX_SLICES)"
        )
    checker = detection.Liveness(slices, _PROBE_S)
    while len(there := detection.active(slices, checker)) < wanted:
        have = f"slices {sorted(there)} answer, and {wanted} are wanted"
        if not waiting.left_s:
            raise SliceShortageError(
                f"too few slices in time: {have}. 'pathways-slurm status' says why the others are "
                "not there; a smaller min_slices, or MIN_SLICES of the service, does without them"
            )
        waiting.say(f"waiting for slices: {have}")
        time.sleep(min(_LOOK_EVERY_S, waiting.left_s))
