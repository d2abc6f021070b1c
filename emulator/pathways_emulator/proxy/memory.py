# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Giving memory back to the system."""

import ctypes
import gc


def release_unused() -> None:
    """Returns freed memory to the system; takes some tens of milliseconds.

    The C library keeps what was freed, in the order of what a session's arrays took at their most,
    so that a proxy that serves one client after the other would look ever larger.
    """
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:  # only glibc has it
        trim(0)
