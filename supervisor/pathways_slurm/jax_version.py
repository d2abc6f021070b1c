# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Versions of JAX: which of them are the same release. Standard library only."""

import re


def release(version: str) -> tuple[int, ...]:
    """The three numbers of a release; a fourth is a new build of the same one."""
    return tuple(map(int, re.findall(r"\d+", version)[:3]))
