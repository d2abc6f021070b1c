# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Settings that are right, to be changed by a test."""

import pytest

from pathways_slurm.config import (
    Fault,
    Settings,
    SettingsError,
    load_settings,
)

GOOD = {
    "HOME": "/home/ann",
    "SLICE_SHAPE": "2x4",
    "MIN_SLICES": "2",
    "MAX_SLICES": "3",
    "GCS_BUCKET": "my-bucket",
}


BOTH_IMAGES = {
    "PATHWAYS_SERVER_IMAGE": "/images/server.sqsh",
    "PATHWAYS_PROXY_IMAGE": "registry.example:5000/p/proxy@sha256:" + 64 * "0",
}


def load(**changes: str) -> Settings:
    return load_settings(GOOD | changes)


def faults_of(environ: dict[str, str]) -> dict[str, Fault]:
    with pytest.raises(SettingsError) as caught:
        load_settings(environ)
    faults = {fault.variable: fault for fault in caught.value.faults}
    assert len(faults) == len(caught.value.faults), "one fault per variable"
    assert str(caught.value).splitlines() == [str(fault) for fault in caught.value.faults]
    return faults
