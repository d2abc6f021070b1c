# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""An open CPU runtime with Pathways' command lines and JAX's IFRT proxy protocol."""
