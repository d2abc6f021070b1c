# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""One handler per type of request, grouped by theme."""

from collections.abc import Mapping
from types import MappingProxyType

from pathways_emulator.proxy.handlers import arrays, devices, execute, host, programs, ready
from pathways_emulator.proxy.session import Handler

HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        **devices.HANDLERS,
        **host.HANDLERS,
        **arrays.HANDLERS,
        **ready.HANDLERS,
        **programs.HANDLERS,
        **execute.HANDLERS,
    }
)
