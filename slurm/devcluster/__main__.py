# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""``python -m slurm.devcluster``."""

from slurm.devcluster.cli import run

if __name__ == "__main__":
    run()
