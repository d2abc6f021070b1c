# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""One line per event on standard error, with the time, for people who read a log file."""

import logging
import os
import time

FORMAT = "%(asctime)s.%(msecs)03d %(levelname)s %(message)s"


def configure() -> None:
    """Sets up the root logger of a command; call it before gRPC is imported."""
    # gRPC's own messages repeat what we say better, and come in several lines.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    formatter = logging.Formatter(FORMAT, datefmt="%Y-%m-%dT%H:%M:%S")
    formatter.converter = time.localtime
    handler = logging.StreamHandler()
    handler.setFormatter(formatter)
    logging.basicConfig(level=logging.INFO, handlers=[handler])
