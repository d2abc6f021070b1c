# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The supervisor's own log: a line an entry, each a list of NAME=VALUE.

The standard library's logging, because a service is up the sooner the less its supervisor imports:
structlog, which writes such lines too, takes a third of what a supervisor needs to start.
"""

import logging
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from pathways_slurm.files import PRIVATE_FILE_MODE

_PACKAGE = __name__.partition(".")[0]
_FIELDS = "fields"


class Logger:
    """What a module logs with; each keyword argument is a field of the entry."""

    def __init__(self, name: str) -> None:
        self._log = logging.getLogger(name)

    def info(self, event: str, **fields: object) -> None:
        """What happened, or was done."""
        self._log.info(event, extra={_FIELDS: fields})

    def warning(self, event: str, **fields: object) -> None:
        """What could not be done, or be seen."""
        self._log.warning(event, extra={_FIELDS: fields})

    def exception(self, event: str, **fields: object) -> None:
        """An error of the program's own: the one that is being handled, with its traceback."""
        self._log.exception(event, extra={_FIELDS: fields})


def get_logger(module: str) -> Logger:
    """The log of a module. Warnings go to stderr until :func:`log_to` has been called."""
    return Logger(module)


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
    handler = logging.StreamHandler(file)
    handler.setFormatter(_Formatter())
    log = logging.getLogger(_PACKAGE)
    log.handlers = [handler]
    log.setLevel(logging.INFO)


class _Formatter(logging.Formatter):
    """Values as Python writes them, so that an entry stays on its line whatever it holds."""

    def format(self, record: logging.LogRecord) -> str:
        return " ".join(f"{name}={value!r}" for name, value in self._fields(record))

    def _fields(self, record: logging.LogRecord) -> Iterator[tuple[str, Any]]:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        yield "timestamp", f"{seconds}.{record.msecs:03.0f}Z"
        yield "level", record.levelname.lower()
        yield "event", record.getMessage()
        yield from getattr(record, _FIELDS, {}).items()
        if record.exc_info:
            yield "exception", self.formatException(record.exc_info)
