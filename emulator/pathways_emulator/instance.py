# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""A running instance, as its users know it: by the variables of its env file or cluster.env."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pathways_emulator import address as addresses
from pathways_emulator import control, env_file
from pathways_emulator.address import Address

_RM_VARIABLE = "PATHWAYS_RM_ADDRESS"


class InstanceError(Exception):
    """There is no such instance; the message says what is missing or wrong."""


@dataclass(frozen=True, slots=True)
class Instance:
    """Where to reach an instance.

    Attributes:
        resource_manager: Of it.
        control: Socket of the `serve` that runs it; None if something else does.
    """

    resource_manager: Address
    control: Path | None


def find(path: Path | None, environment: Mapping[str, str]) -> Instance:
    """The instance that `path`, an env file, describes; without one, that of `environment`.

    Raises:
        InstanceError: Neither tells of one.
    """
    source, variables = "the environment", environment
    if path is not None:
        source = str(path)
        try:
            variables = env_file.read(path)
        except FileNotFoundError:
            raise InstanceError(
                f"there is no {path}: the instance is not ready, or has ended"
            ) from None
        except (OSError, ValueError) as error:
            raise InstanceError(str(error)) from None
    text = variables.get(_RM_VARIABLE)
    if not text:
        raise InstanceError(
            f"{_RM_VARIABLE} is not set in {source}. Source the instance's env file or cluster.env "
            "(. FILE), or name it with --env-file FILE"
        )
    try:
        resource_manager = addresses.address(text)
    except ValueError as error:
        raise InstanceError(f"{_RM_VARIABLE} in {source}: {text!r} is not valid: {error}") from None
    socket = variables.get(control.VARIABLE)
    return Instance(resource_manager, Path(socket) if socket else None)
