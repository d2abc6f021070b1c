# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What holds for every test: the settings of whoever runs the tests play no part in them."""

import os
from pathlib import Path

import pytest

# Settings of the service, of the TPU environment, and of JAX. A user who has a service running
# exports many of them; a test that inherited one would talk to that service.
_PREFIXES = ("PATHWAYS_", "TPU_", "MEGASCALE_", "JAX_", "XLA_", "SLURM_", "SBATCH_")
_NAMES = frozenset({"SLICE_SHAPE", "MIN_SLICES", "MAX_SLICES", "GCS_BUCKET"})

# In the place of NVIDIA's, which the machines of these tests need not have.
_STANDIN = Path(__file__).parent / "standins" / "enroot"

_removed = pytest.StashKey[dict[str, str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--enroot",
        type=Path,
        default=_STANDIN,
        metavar="PATH",
        help="the enroot that tests run containers with (default: the stand-in for it)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Before anything is collected: modules read the environment when they are imported."""
    found = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(_PREFIXES) or name in _NAMES
    }
    for name in found:
        del os.environ[name]
    config.stash[_removed] = found


def pytest_unconfigure(config: pytest.Config) -> None:
    if _removed in config.stash:
        removed = config.stash[_removed]
        os.environ.update(removed)
