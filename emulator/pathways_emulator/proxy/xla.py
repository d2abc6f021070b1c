# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""jaxlib's compiled modules, for the rest of the proxy.

They come without type stubs, so this is where the emulator gives up static types for them.
"""

from importlib import import_module
from typing import Any

# Objects of jaxlib's own classes.
type XlaArray = Any
type XlaClient = Any
type XlaDevice = Any
type XlaExecutable = Any
type XlaSharding = Any
type HloSharding = Any

hlo: Any = import_module("jaxlib._hlo")
jax: Any = import_module("jaxlib._jax")

_client: Any = import_module("jaxlib.xla_client")
_lapack: Any = import_module("jaxlib.cpu._lapack")


def make_cpu_client(device_count: int) -> XlaClient:
    """A CPU client with that many virtual devices.

    The client of a session lowers its programs itself, so nothing but this loads LAPACK in our
    process; without it the first decomposition would end the process.
    """
    _lapack.initialize()
    return _client.make_cpu_client(num_devices=device_count)
