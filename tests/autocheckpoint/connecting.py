# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Connects as a notebook's cells do: in the main thread, within a running event loop.

python tests/autocheckpoint/connecting.py CLUSTER_ENV DIRECTORY
"""

import asyncio
import logging
import shutil
import sys
from pathlib import Path
from typing import Any

import jax

import pathways_elastic
from pathways_elastic.errors import ElasticError


class Waits(logging.Handler):
    """Publishes the service as soon as somebody says that it waits for it."""

    def __init__(self, source: Path, target: Path) -> None:
        super().__init__()
        self._source, self._target = source, target
        self.cell = 1

    def emit(self, record: logging.LogRecord) -> None:
        print(f"cell {self.cell}: {record.getMessage()}", flush=True)
        if str(self._target) in record.getMessage():
            shutil.copy(self._source, self._target)


def refused(cluster_env: Path, **options: Any) -> None:
    try:
        pathways_elastic.connect(cluster_env, **options)
    except ElasticError as error:
        print(f"{type(error).__name__}: {error}", flush=True)


async def cells(cluster_env: Path, directory: Path) -> None:
    late = directory / "late.env"
    waits = Waits(cluster_env, late)
    logging.getLogger("pathways_elastic").addHandler(waits)
    refused(late, min_slices=3)
    refused(late, timeout_s=4)
    waits.cell = 2
    devices = pathways_elastic.connect()
    print(f"connected {len(devices)}", flush=True)
    assert pathways_elastic.connect() == devices == jax.devices()
    print(f"computed {float(jax.numpy.arange(4.0).sum())}", flush=True)
    another = directory / "another.env"
    shutil.copy(late, another)
    another.write_text(late.read_text().replace("RUN_ID=", "RUN_ID=another-"))
    refused(another)


asyncio.run(cells(Path(sys.argv[1]), Path(sys.argv[2])))
