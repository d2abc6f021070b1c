# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""How single settings are written and read. Faults here are the ends of sentences about a value."""

import ipaddress
import re
import shlex
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo

from pathways_slurm.paths import NAME
from pathways_slurm.topology import TPU_TYPES, TopologyError, parse_shape

_LOOPBACK = ipaddress.IPv4Network("127.0.0.0/8")


def setting(
    variable: str,
    meaning: str,
    valid: str,
    *,
    default: Any = ...,
    default_text: str | None = None,
    stand_in: Any = None,
    **limits: Any,
) -> Any:
    """A field of the settings, read from the environment variable ``variable``.

    Args:
        variable: Its name.
        meaning: For the table of settings.
        valid: Valid values, for that table and for faults.
        default: As a user would write it, and validated like a user's; required if missing.
        default_text: What the default means, where its value does not say so.
        stand_in: For required fields, a value that no check between settings objects to.
        limits: Bounds as pydantic's ``Field`` takes them (``ge``, ``le``).
    """
    if default is not ... and default_text is None:
        default_text = str(default)
    extra = {"valid": valid, "default_text": default_text, "stand_in": stand_in}
    return Field(default, alias=variable, description=meaning, json_schema_extra=extra, **limits)


def _absolute_path(value: str, info: ValidationInfo) -> Path:
    # The HOME of the environment being read, which need not be that of this process.
    home = (info.context or {}).get("HOME", "")
    if value == "~" or value.startswith("~/"):
        if not home.startswith("/"):
            raise ValueError("starts with ~, but HOME is not set to an absolute directory")
        value = home + value[1:]
    if not value.startswith("/"):
        raise ValueError("is not an absolute path")
    # These would mean different things to the readers of cluster.env.
    if re.search(r"['\"\\$`]", value) or not value.isprintable():
        raise ValueError("has a quote, a backslash, a dollar sign or a control character")
    return Path(value)


def _tpu_type(value: str) -> str:
    if value not in TPU_TYPES:
        raise ValueError("is not a known TPU type")
    return value


def _slice_shape(value: str) -> str:
    try:
        parse_shape(value)
    except TopologyError:
        raise ValueError("is not a slice shape") from None
    return value


def _bucket(value: str, info: ValidationInfo) -> str:
    if value.startswith(("/", "~")):
        return str(_absolute_path(value, info))
    name = value.removeprefix("gs://").removesuffix("/")
    # Cloud Storage's naming rules, but for those that only the service itself can check.
    if not re.fullmatch(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]", name):
        raise ValueError("is neither a bucket name nor an absolute directory")
    return f"gs://{name}"


def _name(value: str) -> str:
    if not NAME.fullmatch(value):
        raise ValueError("is not a valid name")
    return value


def _local_network(value: ipaddress.IPv4Network) -> ipaddress.IPv4Network:
    if value.prefixlen != 16 or not value.subnet_of(_LOOPBACK):
        raise ValueError("is not a /16 network of loopback addresses")
    return value


def _extra_args(value: str) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(value))
    except ValueError as error:
        raise ValueError(f"can't be split into words: {error}") from None
    for word in words:
        # Replacing a flag of the same name needs name and value in one word.
        if not re.match(r"--[A-Za-z]", word):
            raise ValueError(f"has the word {word!r}, which is not of the form --flag=value")
    return words


TpuType = Annotated[str, AfterValidator(_tpu_type)]
SliceShape = Annotated[str, AfterValidator(_slice_shape)]
AbsolutePath = Annotated[Path, BeforeValidator(_absolute_path)]
Bucket = Annotated[str, AfterValidator(_bucket)]
ServiceName = Annotated[str, AfterValidator(_name)]
LocalNetwork = Annotated[ipaddress.IPv4Network, AfterValidator(_local_network)]
ExtraArgs = Annotated[tuple[str, ...], BeforeValidator(_extra_args)]
Seconds = Annotated[float, Field(allow_inf_nan=False)]
