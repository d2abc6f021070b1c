# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The flags of ``/pathways/server`` and ``/pathways/proxy_server``, and no others.

Scripts and images can then use the emulator in the place of the real binaries. What the emulator
needs beyond them comes from the environment (`pathways_emulator.settings`). The syntax is that of
absl: ``--flag=value``, ``--flag value``, ``-flag``, and ``--flag`` or ``--noflag`` for booleans.
"""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from pathways_emulator import reading
from pathways_emulator.address import Address, address
from pathways_emulator.reading import Reader

SERVER = "pathways-emulator-server"
PROXY_SERVER = "pathways-emulator-proxy-server"


class HelpRequest(Exception):
    """--help was given; the text to print is the argument."""


@dataclass(frozen=True, slots=True)
class _Flag:
    name: str
    example: str
    help: str

    @property
    def boolean(self) -> bool:
        return self.example in ("true", "false")


_PORT = _Flag("server_port", "29001", "TCP port to listen on.")
_RM = _Flag("resource_manager_address", "HOST:29001", "Where the resource manager listens.")
_SCRATCH = _Flag(
    "gcs_scratch_location",
    "gs://BUCKET/PATH",
    "Scratch space: gs://… or an absolute directory. The proxy saves there what is on a slice that "
    "is about to go.",
)
_NODE_TYPE = _Flag(
    "node_type", "resource_manager", "Makes this process the resource manager; not for workers."
)
_TYPE = _Flag("instance_type", "tpuv6e:2x4", "Type and shape of every slice.")
_COUNT = _Flag("instance_count", "3", "Number of slices at most.")
_OLM = _Flag("enable_gcs_olm", "false", "Accepted for compatibility; without effect. Optional.")
_ELASTIC = _Flag("num_elastic_instances", "3", "How many slices may be missing.")

_RM_FLAGS = (_PORT, _NODE_TYPE, _TYPE, _COUNT, _SCRATCH, _OLM)
_WORKER_FLAGS = (_PORT, _RM, _SCRATCH, _OLM)
_SERVER_FLAGS = (_PORT, _NODE_TYPE, _TYPE, _COUNT, _RM, _SCRATCH, _OLM)
_PROXY_FLAGS = (_PORT, _RM, _SCRATCH, _ELASTIC)


@dataclass(frozen=True, slots=True)
class ResourceManagerFlags:
    """Flags of ``/pathways/server --node_type=resource_manager``."""

    server_port: int
    instance_type: str
    instance_count: int
    gcs_scratch_location: str
    enable_gcs_olm: bool


@dataclass(frozen=True, slots=True)
class WorkerFlags:
    """Flags of ``/pathways/server`` as a worker."""

    server_port: int
    resource_manager_address: Address
    gcs_scratch_location: str
    enable_gcs_olm: bool


@dataclass(frozen=True, slots=True)
class ProxyFlags:
    """Flags of ``/pathways/proxy_server``."""

    server_port: int
    resource_manager_address: Address
    gcs_scratch_location: str
    num_elastic_instances: int


def read_server(arguments: Sequence[str], faults: list[str]) -> ResourceManagerFlags | WorkerFlags:
    """Flags of the resource manager if ``--node_type`` is among them, else of a worker.

    Faults are appended to `faults`; if there is any, the result must not be used.

    Raises:
        HelpRequest: --help is among the arguments.
    """
    values = _scan(SERVER, arguments, _SERVER_FLAGS, faults)
    reader = Reader(values, faults, prefix="--")
    is_manager = "node_type" in values or (
        "resource_manager_address" not in values and bool({_TYPE.name, _COUNT.name} & values.keys())
    )
    _reject_other_role(reader, is_manager)
    hints = _hints(_SERVER_FLAGS)
    server_port = reader.required("server_port", reading.port, 0, hints["server_port"])
    scratch = reader.required("gcs_scratch_location", _scratch, "", hints["gcs_scratch_location"])
    olm = reader.optional("enable_gcs_olm", reading.boolean, False)
    if is_manager:
        reader.required("node_type", _node_type, "", hints["node_type"])
        count = partial(reading.integer, minimum=1)
        return ResourceManagerFlags(
            server_port=server_port,
            instance_type=reader.required("instance_type", str, "", hints["instance_type"]),
            instance_count=reader.required("instance_count", count, 0, hints["instance_count"]),
            gcs_scratch_location=scratch,
            enable_gcs_olm=olm,
        )
    return WorkerFlags(
        server_port=server_port,
        resource_manager_address=reader.required(
            "resource_manager_address", address, Address("", 0), hints["resource_manager_address"]
        ),
        gcs_scratch_location=scratch,
        enable_gcs_olm=olm,
    )


def read_proxy(arguments: Sequence[str], faults: list[str]) -> ProxyFlags:
    """Flags of the proxy; faults and help as in `read_server`."""
    reader = Reader(_scan(PROXY_SERVER, arguments, _PROXY_FLAGS, faults), faults, prefix="--")
    hints = _hints(_PROXY_FLAGS)
    elastic = partial(reading.integer, minimum=0)
    return ProxyFlags(
        server_port=reader.required("server_port", reading.port, 0, hints["server_port"]),
        resource_manager_address=reader.required(
            "resource_manager_address", address, Address("", 0), hints["resource_manager_address"]
        ),
        gcs_scratch_location=reader.required(
            "gcs_scratch_location", _scratch, "", hints["gcs_scratch_location"]
        ),
        num_elastic_instances=reader.required(
            "num_elastic_instances", elastic, 0, hints["num_elastic_instances"]
        ),
    )


def _reject_other_role(reader: Reader, is_manager: bool) -> None:
    role = "the resource manager" if is_manager else "a worker"
    own = _RM_FLAGS if is_manager else _WORKER_FLAGS
    for flag in _SERVER_FLAGS:
        if flag.name in reader.values and flag not in own:
            reader.fault(flag.name, f"is not a flag of {role}, whose flags are {_names(own)}")


def _scan(
    command: str, arguments: Sequence[str], flags: Sequence[_Flag], faults: list[str]
) -> dict[str, str]:
    """Splits the arguments into texts by flag name; the last one of a flag counts, as in absl."""
    known: Mapping[str, _Flag] = {flag.name: flag for flag in flags}
    values: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if argument in ("--help", "-help", "-h"):
            raise HelpRequest(_help(command, flags))
        if not argument.startswith("-") or argument in ("-", "--"):
            faults.append(f"{argument}: not a flag; this command takes only {_names(flags)}")
            continue
        name, equals, value = argument.lstrip("-").partition("=")
        if name.startswith("no") and not equals and name[2:] in known and known[name[2:]].boolean:
            name, equals, value = name[2:], "=", "false"
        if name not in known:
            faults.append(f"--{name}: unknown flag; valid flags are {_names(flags)}")
            if not equals and rest and not rest[0].startswith("-"):
                rest.pop(0)  # Most likely its value: one fault, not two.
            continue
        if not equals:
            value = _next_value(known[name], rest)
        values[name] = value
    return values


def _next_value(flag: _Flag, rest: list[str]) -> str:
    if flag.boolean:
        return rest.pop(0) if rest and rest[0].lower() in ("true", "false") else "true"
    return rest.pop(0) if rest and not rest[0].startswith("--") else ""


def _scratch(text: str) -> str:
    if text.startswith("/") or (text.startswith("gs://") and text[5:].split("/")[0]):
        return text
    raise ValueError("expected gs://BUCKET/PATH or an absolute directory")


def _node_type(text: str) -> str:
    if text != "resource_manager":
        raise ValueError("expected resource_manager; a worker takes no --node_type")
    return text


def _hints(flags: Sequence[_Flag]) -> dict[str, str]:
    return {flag.name: f"for example --{flag.name}={flag.example}" for flag in flags}


def _names(flags: Sequence[_Flag]) -> str:
    return ", ".join(f"--{flag.name}" for flag in flags)


def _help(command: str, flags: Sequence[_Flag]) -> str:
    lines = [f"Usage: {command} --flag=value ...", ""]
    if command == SERVER:
        lines += [
            "Resource manager of the Pathways emulator (with --node_type=resource_manager),",
            "or one worker of a slice (with --resource_manager_address).",
            "",
        ]
    else:
        lines += ["IFRT proxy of the Pathways emulator: what JAX connects to.", ""]
    for flag in flags:
        lines.append(f"  --{flag.name}={flag.example}")
        lines += textwrap.wrap(flag.help, 86, initial_indent=" " * 6, subsequent_indent=" " * 6)
    lines += ["", "Further settings come from the environment: see docs/architecture.md."]
    return "\n".join(lines)
