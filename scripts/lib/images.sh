# shellcheck shell=bash
# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
#
# The table of container images, enroot/images.toml, for scripts. To be sourced after common.sh.

# images::versions ROOT   Prints the versions of JAX that the table has images for, one a line, the
# newest last.
images::versions() {
	sed -n 's/^\["\([0-9.]*\)"\]$/\1/p' "$1/enroot/images.toml" | sort -V
}
