# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""``python -m pathways_slurm`` is ``pathways-slurm``, also where no console script is on PATH."""

from pathways_slurm.cli import main

if __name__ == "__main__":
    main()
