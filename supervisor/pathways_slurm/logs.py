# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The supervisor's own log."""

import os
import sys
from pathlib import Path
from typing import TextIO

import structlog

from pathways_slurm.files import PRIVATE_FILE_MODE


def log_to(path: Path) -> None:
    """From now on this process logs to ``path``: appended, one line an entry, mode 0600.

    To stderr if ``path`` can't be opened: a log that can't be written must not keep a service from
    being looked after, or from being ended.
    """
    try:
        descriptor = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, PRIVATE_FILE_MODE
        )
        file: TextIO = os.fdopen(descriptor, "w", buffering=1)
    except OSError as error:
        file = sys.stderr
        print(f"pathways-slurm: {path} can't be written ({error}); logging here", file=file)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.KeyValueRenderer(key_order=["timestamp", "level", "event"]),
        ],
        logger_factory=structlog.WriteLoggerFactory(file),
        cache_logger_on_first_use=True,
    )
