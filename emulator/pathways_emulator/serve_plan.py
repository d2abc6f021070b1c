# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What `pathways-emulator serve` is going to run. Pure, but for a look at what is taken already."""

import importlib.metadata
import ipaddress
import os
import secrets
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pathways_emulator import address as addresses
from pathways_emulator import control, env_file, reading, settings
from pathways_emulator.address import Address
from pathways_emulator.reading import Reader
from pathways_emulator.settings import OnNotice
from pathways_slurm import topology
from pathways_slurm.runtime_files import ORDERS_VARIABLE, REPORT_VARIABLE
from pathways_slurm.topology import Topology, TopologyError

_RM_PORT = 29001
_WORKER_PORT = 29001
# Addresses are N.N.(1+slice).(1+host), and the last byte 255 is a broadcast address.
_MAX_SLICES = 254
_MAX_HOSTS = 254

# Would make the proxy a client of itself, describe another slice to a worker, or have files of
# another service written.
_NOT_INHERITED = (
    *("TPU_", "MEGASCALE_", "JAX_PLATFORMS", "JAX_BACKEND_TARGET", "IFRT_PROXY_"),
    *(REPORT_VARIABLE, ORDERS_VARIABLE, control.VARIABLE),
)


@dataclass(frozen=True, slots=True)
class Component:
    """One process.

    Attributes:
        name: For people.
        argv: Its command line.
        environment: All of it.
        address: Where it listens once it is ready.
    """

    name: str
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    address: Address


@dataclass(frozen=True, slots=True)
class Worker(Component):
    """A worker process; which host of which slice it is."""

    slice_index: int
    host_index: int


@dataclass(frozen=True, slots=True)
class _Options:
    topology: Topology
    slices: int
    network: str
    port: int
    env_file: Path | None
    on_notice: OnNotice
    notice_s: float


@dataclass(frozen=True, slots=True)
class Plan:
    """All processes of a service.

    Attributes:
        topology: Of each slice.
        slices: How many.
        variables: What a JAX process needs to use the service.
        env_file: Where these are written, if anywhere; absolute.
        on_notice: What the proxy does for a slice that is about to go.
        directory: For files of this run; not there yet, and nobody else's.
        scratch: Directory in it where the proxy saves what is on such a slice; not there yet.
        report_file: In it, written by the resource manager.
        control_socket: In it, where orders are taken.
    """

    topology: Topology
    slices: int
    manager: Component
    proxy: Component
    workers: tuple[Worker, ...]
    variables: Mapping[str, str]
    env_file: Path | None
    on_notice: OnNotice
    directory: Path
    scratch: Path
    report_file: Path
    control_socket: Path


def make(
    options: Mapping[str, str], environment: Mapping[str, str], faults: list[str]
) -> Plan | None:
    """A plan from the options' texts.

    Args:
        options: By name without dashes: slices, slice-shape, tpu-type, port, network, env-file,
            on-notice, notice-seconds.
        environment: Of this process, which the others inherit in part.
        faults: Appended to; what is wrong, taken ports included.

    Returns:
        None if there is any fault.
    """
    reader = Reader(options, faults, prefix="--")
    count = partial(reading.integer, minimum=1, maximum=_MAX_SLICES)
    slices = reader.required("slices", count, 1, "for example --slices 3")
    shape = reader.required("slice-shape", str, "", "for example --slice-shape 2x2")
    tpu_type = reader.required("tpu-type", str, "", "for example --tpu-type v6e")
    port = reader.required("port", reading.port, 0, "for example --port 29000")
    base = reader.required("network", _network, "", "for example --network 127.0.0.0/16")
    target = reader.optional("env-file", _env_file, None)
    on_notice = reader.optional("on-notice", settings.on_notice, settings.DEFAULT_ON_NOTICE)
    notice_s = reader.optional("notice-seconds", reading.seconds_or_zero, settings.DEFAULT_NOTICE_S)
    parsed: Topology | None = None
    if shape and tpu_type:
        try:
            parsed = topology.topology_for(tpu_type, shape)
        except TopologyError as error:
            reader.fault("slice-shape", str(error))
    if parsed is not None and parsed.hosts > _MAX_HOSTS:
        reader.fault("slice-shape", f"{shape} has {parsed.hosts} hosts; at most {_MAX_HOSTS} fit")
    if port == _RM_PORT:
        reader.fault("port", f"{port} is the resource manager's; choose another")
    if faults or parsed is None:
        return None
    chosen = _Options(parsed, slices, base, port, target, on_notice, notice_s)
    plan = _assemble(chosen, environment)
    for component in (plan.manager, plan.proxy, *plan.workers):
        try:
            addresses.require_free(component.address)
        except OSError as error:
            if component is plan.proxy:
                faults.append(f"--port: {error.strerror}")
                continue
            advice = "choose another --network, such as 127.8.0.0/16"
            problem = str(error.strerror).partition(";")[0]
            faults.append(f"--network: {problem} (for the {component.name}); {advice}")
            break  # The others are most likely in use by the same service.
    return None if faults else plan


def _assemble(chosen: _Options, environment: Mapping[str, str]) -> Plan:
    parsed, slices = chosen.topology, chosen.slices
    service = f"{chosen.network}.0.1"
    # With a secret in its name, so that nobody can be there first.
    directory = Path(
        tempfile.gettempdir(), f"pathways-emulator-{os.getpid()}-{secrets.token_hex(8)}"
    )
    scratch, report = directory / "scratch", directory / "report.json"
    control_socket = directory / "control.sock"
    scratch_flag = f"--gcs_scratch_location={scratch}"
    manager_at, proxy_at = Address(service, _RM_PORT), Address(service, chosen.port)
    inherited = {
        name: text for name, text in environment.items() if not name.startswith(_NOT_INHERITED)
    }
    at_service = inherited | {"PATHWAYS_BIND_ADDRESS": service}
    server = (sys.executable, "-m", "pathways_emulator.server")
    manager = Component(
        "resource manager",
        (
            *server,
            f"--server_port={_RM_PORT}",
            "--node_type=resource_manager",
            f"--instance_type={parsed.instance_type}",
            f"--instance_count={slices}",
            scratch_flag,
        ),
        at_service | {REPORT_VARIABLE: str(report)},
        manager_at,
    )
    proxy = Component(
        "proxy",
        (
            *(sys.executable, "-m", "pathways_emulator.proxy_server"),
            f"--server_port={chosen.port}",
            f"--resource_manager_address={manager_at}",
            f"--num_elastic_instances={slices}",
            scratch_flag,
        ),
        at_service | {settings.ON_NOTICE_VARIABLE: chosen.on_notice},
        proxy_at,
    )
    worker_argv = (
        *server,
        f"--server_port={_WORKER_PORT}",
        f"--resource_manager_address={manager_at}",
        scratch_flag,
    )
    at_worker = inherited | {settings.NOTICE_VARIABLE: f"{chosen.notice_s:g}"}
    workers = tuple(
        _worker(parsed, slices, chosen.network, index, host, worker_argv, at_worker)
        for index in range(slices)
        for host in range(parsed.hosts)
    )
    variables = {
        "JAX_PLATFORMS": "proxy",
        "JAX_BACKEND_TARGET": f"grpc://{proxy_at}",
        # Exactly "true": the client tries to authenticate for any other spelling, and hangs.
        "IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS": "true",
        # The rest as in a service's cluster.env, so that what reads that reads this.
        "PATHWAYS_RUN_ID": f"emulator-{os.getpid()}",
        "PATHWAYS_NAME": "emulator",
        "PATHWAYS_MIN_SLICES": str(slices),
        "PATHWAYS_JAX_VERSION": importlib.metadata.version("jaxlib"),
        "PATHWAYS_TPU_TYPE": parsed.tpu_type,
        "PATHWAYS_SLICE_SHAPE": parsed.shape,
        "PATHWAYS_MAX_SLICES": str(slices),
        "PATHWAYS_RM_ADDRESS": str(manager_at),
        # And what a service has not: its slices are its scheduler's to revive.
        control.VARIABLE: str(control_socket),
    }
    return Plan(
        topology=parsed,
        slices=slices,
        manager=manager,
        proxy=proxy,
        workers=workers,
        variables=variables,
        env_file=chosen.env_file,
        on_notice=chosen.on_notice,
        directory=directory,
        scratch=scratch,
        report_file=report,
        control_socket=control_socket,
    )


def _worker(
    parsed: Topology,
    slices: int,
    base: str,
    slice_index: int,
    host_index: int,
    argv: tuple[str, ...],
    inherited: Mapping[str, str],
) -> Worker:
    nodes = [f"{base}.{1 + slice_index}.{1 + host}" for host in range(parsed.hosts)]
    own = topology.host_environment(
        parsed,
        host_index=host_index,
        node_addresses=nodes,
        slice_index=slice_index,
        num_slices=slices,
        coordinator=f"{base}.0.1",
    )
    place = {
        "PATHWAYS_SLICE_INDEX": str(slice_index),
        "PATHWAYS_HOST_INDEX": str(host_index),
        "PATHWAYS_NODE_NAMES": ",".join(nodes),
        "PATHWAYS_NODE_ADDRESSES": ",".join(nodes),
        "PATHWAYS_INCARNATION": "1",
    }
    return Worker(
        name=f"worker of slice {slice_index} host {host_index}",
        argv=argv,
        environment={**inherited, **own, **place},
        address=Address(nodes[host_index], _WORKER_PORT),
        slice_index=slice_index,
        host_index=host_index,
    )


def _network(text: str) -> str:
    """The first two bytes of a /16 of loopback addresses, such as ``127.0``."""
    expected = "expected a network of 127.0.0.0/8 of the form 127.N.0.0/16"
    try:
        network = ipaddress.IPv4Network(text)
    except ValueError as error:
        raise ValueError(f"{expected}; {error}") from None
    if network.prefixlen != 16 or not network.is_loopback:
        raise ValueError(expected)
    return ".".join(str(network.network_address).split(".")[:2])


def _env_file(text: str) -> Path:
    path = Path(text).expanduser().absolute()
    if not path.parent.is_dir():
        raise ValueError(f"the directory {path.parent} does not exist; create it first")
    if not os.access(path.parent, os.W_OK):
        raise ValueError(f"the directory {path.parent} is not writable")
    if path.exists() and not env_file.is_ours(path):
        raise ValueError("the file exists and is not of this command; choose another, or remove it")
    return path
