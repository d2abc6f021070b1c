# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""cluster.env, the discovery file: how a JAX program finds the service.

It can be sourced (``. ~/pathways/cluster.env``) and read by dotenv readers. Values that those two
would understand differently can't be written. Reading is strict and executes nothing.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pathways_slurm import files, launch
from pathways_slurm.jax_version import release

if TYPE_CHECKING:
    from pathways_slurm.config import Settings

_HEADER = """\
# Where the Pathways service is. Written by pathways-slurm; removed when the service ends.
# In bash: . cluster.env
"""

_LINE = re.compile(r"(?:export )?([A-Z][A-Z0-9_]*)=(.*)")
_PLAIN = re.compile(r"[A-Za-z0-9_./:@%+,=-]+")
# A quote ends the value, readers differ on backslashes, and some expand ${NAME} even in quotes.
_UNQUOTABLE = re.compile(r"['\\$`]")

# Nothing else has a place in the file: LD_PRELOAD or PATH there would be an attack.
_PREFIXES = ("IFRT_", "JAX_", "PATHWAYS_")


class ClusterEnvError(ValueError):
    """The file is not a cluster.env; the message has the path and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class ClusterEnv:
    """What a program needs to know of a service.

    Attributes:
        run_id: Of the run that published this.
        name: Of the service.
        home: PATHWAYS_HOME of the service; None for a runtime that has no service around it.
        proxy_address: ``ADDRESS:PORT`` that JAX connects to.
        rm_address: ``ADDRESS:PORT`` of the resource manager.
        tpu_type: Such as ``v6e``.
        slice_shape: Such as ``2x4``.
        min_slices: Slices below which the service is not announced.
        max_slices: Slices of the service when all are there.
        jax_version: That the runtime speaks; None if it is not known.
        on_notice: Who looks after the data of a slice that goes: the service (``suspend``) or the
            program (``forward``); None if there are no notices.
    """

    run_id: str
    name: str
    home: str | None
    proxy_address: str
    rm_address: str
    tpu_type: str
    slice_shape: str
    min_slices: int
    max_slices: int
    jax_version: str | None = None
    on_notice: str | None = None

    @classmethod
    def of(cls, settings: "Settings", run_id: str, service_address: str) -> "ClusterEnv":
        """As a service with these settings publishes it from ``service_address``."""
        return cls(
            run_id=run_id,
            name=settings.name,
            home=str(settings.home),
            proxy_address=f"{service_address}:{settings.proxy_port}",
            rm_address=f"{service_address}:{settings.rm_port}",
            tpu_type=settings.tpu_type,
            slice_shape=settings.slice_shape,
            min_slices=settings.min_slices,
            max_slices=settings.max_slices,
            jax_version=launch.jax_version(settings),
            on_notice=settings.on_notice,
        )

    def fits(self, client: str) -> bool:
        """Whether a client with that version of jaxlib may use the service.

        The first three numbers count: a fourth is a new build of the same release. If the service's
        version is not known, nothing speaks against it.
        """
        return self.jax_version is None or release(self.jax_version) == release(client)

    def variables(self) -> dict[str, str]:
        """The environment variables that a program is given."""
        known = {
            "PATHWAYS_HOME": self.home,
            "PATHWAYS_JAX_VERSION": self.jax_version,
            "PATHWAYS_ON_NOTICE": self.on_notice,
        }
        return {
            "JAX_PLATFORMS": "proxy",
            "JAX_BACKEND_TARGET": f"grpc://{self.proxy_address}",
            "IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS": "true",
            "PATHWAYS_MAX_SLICES": str(self.max_slices),
            "PATHWAYS_MIN_SLICES": str(self.min_slices),
            "PATHWAYS_NAME": self.name,
            "PATHWAYS_RM_ADDRESS": self.rm_address,
            "PATHWAYS_RUN_ID": self.run_id,
            "PATHWAYS_SLICE_SHAPE": self.slice_shape,
            "PATHWAYS_TPU_TYPE": self.tpu_type,
            **{name: value for name, value in known.items() if value is not None},
        }

    def render(self) -> str:
        """The text of the file.

        Raises:
            ValueError: A value has a character that can't be written safely.
        """
        lines = [f"export {name}={quote(value)}\n" for name, value in self.variables().items()]
        return _HEADER + "".join(lines)


def quote(value: str) -> str:
    """``value`` in a form that bash and dotenv readers understand alike.

    Raises:
        ValueError: There is none: it has a single quote, a backslash, a dollar sign, a backquote
            or a control character.
    """
    if _PLAIN.fullmatch(value):
        return value
    if _UNQUOTABLE.search(value) or not value.isprintable():
        raise ValueError(
            f"{value!r} can't be written to cluster.env: quotes ('), backslashes, dollar signs, "
            "backquotes and control characters mean different things to different readers"
        )
    return f"'{value}'"


def write(path: Path, env: ClusterEnv) -> None:
    """Publishes ``env``: a reader finds the whole file or none.

    Raises:
        ValueError: A value can't be written safely.
        OSError: The file can't be written.
    """
    files.write_atomic(path, env.render())


def read(path: Path) -> ClusterEnv:
    """Reads a published file.

    Raises:
        FileNotFoundError: There is none: the service is not ready, or has ended.
        ClusterEnvError: It is not one that :func:`write` wrote.
        OSError: It can't be read.
    """
    if path.stat().st_mode & 0o022:
        raise ClusterEnvError(
            f"{path}: other users can write to it, so it may lead anywhere. "
            f"If it is right: chmod 600 {path}"
        )
    try:
        # As bytes, because reading text would hide carriage returns.
        text = path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise ClusterEnvError(f"{path}: not UTF-8 text: {error}") from None
    return _parse(path, text)


def run_id_of(path: Path) -> str | None:
    """The run that published the file; None if there is no file, or it does not say.

    Not strict: a file that was damaged must still be withdrawn by its own run.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None
    found = re.search(r"^(?:export )?PATHWAYS_RUN_ID=([A-Za-z0-9_./:@%+,=-]+)$", text, re.MULTILINE)
    return found and found[1]


def remove(path: Path, run_id: str) -> bool:
    """Withdraws the file if ``run_id`` published it; False if there is none of that run.

    Raises:
        OSError: It can't be removed.
    """
    if run_id_of(path) != run_id:
        return False
    path.unlink(missing_ok=True)
    files.sync_dir(path.parent)
    return True


def _parse(path: Path, text: str) -> ClusterEnv:
    values: dict[str, str] = {}
    # Not splitlines(): that also splits at characters which are ordinary ones to bash.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line or line.startswith("#"):
            continue
        where = f"{path}, line {number}"
        match = _LINE.fullmatch(line)
        if match is None:
            raise ClusterEnvError(f"{where}: {line!r} is not of the form export NAME=VALUE")
        name, written = match[1], match[2]
        if not name.startswith(_PREFIXES):
            prefixes = ", ".join(f"{prefix}*" for prefix in _PREFIXES)
            raise ClusterEnvError(f"{where}: {name} has no place here. Valid: {prefixes}")
        if name in values:
            raise ClusterEnvError(f"{where}: {name} is there twice")
        values[name] = _unquote(where, name, written)
    return _from_variables(path, values)


def _unquote(where: str, name: str, written: str) -> str:
    quoted = len(written) >= 2 and written[0] == written[-1] == "'"
    value = written[1:-1] if quoted else written
    try:
        canonical = quote(value)
    except ValueError:
        canonical = None
    if written not in (canonical, f"'{value}'") or canonical is None:
        raise ClusterEnvError(
            f"{where}: the value of {name}, {written}, is neither a plain word "
            "(letters, digits and _./:@%+,=-) nor text in single quotes"
        )
    return value


def _from_variables(path: Path, values: dict[str, str]) -> ClusterEnv:
    def required(name: str) -> str:
        if not values.get(name):
            raise ClusterEnvError(f"{path}: {name} is missing. The file is not whole")
        return values[name]

    def count(name: str) -> int:
        value = required(name)
        if not re.fullmatch(r"[1-9][0-9]{0,8}", value):
            raise ClusterEnvError(f"{path}: {name}={value} is not a whole number from 1")
        return int(value)

    for name, only in (
        ("JAX_PLATFORMS", "proxy"),
        ("IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS", "true"),
    ):
        if required(name) != only:
            raise ClusterEnvError(f"{path}: {name}={values[name]}. Valid: {only}")
    target = required("JAX_BACKEND_TARGET")
    if not re.fullmatch(r"grpc://[^/:]+:[0-9]{1,5}", target):
        raise ClusterEnvError(
            f"{path}: JAX_BACKEND_TARGET={target} is not of the form grpc://ADDRESS:PORT"
        )
    return ClusterEnv(
        run_id=required("PATHWAYS_RUN_ID"),
        name=required("PATHWAYS_NAME"),
        home=values.get("PATHWAYS_HOME"),
        proxy_address=target.removeprefix("grpc://"),
        rm_address=required("PATHWAYS_RM_ADDRESS"),
        tpu_type=required("PATHWAYS_TPU_TYPE"),
        slice_shape=required("PATHWAYS_SLICE_SHAPE"),
        min_slices=count("PATHWAYS_MIN_SLICES"),
        max_slices=count("PATHWAYS_MAX_SLICES"),
        jax_version=values.get("PATHWAYS_JAX_VERSION"),
        on_notice=values.get("PATHWAYS_ON_NOTICE"),
    )
