# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Network addresses as the command lines spell them, ``NAME:PORT``."""

import errno
import ipaddress
import re
import socket
from dataclasses import dataclass

from pathways_emulator import reading

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")


class AddressInUseError(OSError):
    """Another process has the address."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where something listens.

    Attributes:
        host: A name or an IP address; IPv6 without brackets.
        port: 1 .. 65535.
    """

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def host(text: str) -> str:
    """A host's name or IP address.

    Raises:
        ValueError: Neither.
    """
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    if not _NAME.fullmatch(bare):
        try:
            ipaddress.IPv6Address(bare)
        except ValueError:
            expected = "expected an IP address or a host name, without a port"
            raise ValueError(expected) from None
    return bare


def address(text: str) -> Address:
    """Parses ``NAME:PORT``, ``IP:PORT`` or ``[IPV6]:PORT``.

    Raises:
        ValueError: Another form.
    """
    name, colon, port = text.rpartition(":")
    expected = "expected NAME:PORT or IP:PORT, such as 10.0.0.2:29001"
    if not colon or (":" in name and not name.startswith("[")):
        raise ValueError(expected)
    try:
        return Address(host(name), reading.port(port))
    except ValueError as error:
        raise ValueError(f"{expected}; {error}") from None


def bind(where: Address) -> socket.socket:
    """A TCP socket bound to `where`, not listening yet: connecting to it is refused.

    Raises:
        AddressInUseError: Another process has it.
        OSError: The address is not one of this machine, or needs rights.
    """
    family, kind, protocol, _, target = socket.getaddrinfo(
        where.host, where.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    bound = socket.socket(family, kind, protocol)
    try:
        # Connections of a predecessor that linger in TIME_WAIT must not keep the port from us; a
        # socket that listens still does.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(target)
    except OSError as error:
        bound.close()
        raise explained(error, where) from error
    return bound


def require_free(where: Address) -> None:
    """Checks that `where` can be listened on now.

    Raises:
        AddressInUseError, OSError: As `bind`.
    """
    with bind(where) as bound:
        try:
            bound.listen(1)
        except OSError as error:
            raise explained(error, where) from error


def explained(error: OSError, where: Address) -> OSError:
    """The same error as a sentence that says what to do."""
    if error.errno == errno.EADDRINUSE:
        return AddressInUseError(
            errno.EADDRINUSE,
            f"cannot listen on {where}: another process listens there; end it, or choose another "
            "port or PATHWAYS_BIND_ADDRESS",
        )
    return OSError(error.errno, f"cannot listen on {where}: {error.strerror}")
