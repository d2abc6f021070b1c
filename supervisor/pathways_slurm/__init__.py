# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The control plane: brings a Pathways service up on Slurm and keeps it up."""

__version__ = "0.1.0"
